"""Names as they stand on the server: others may have chosen any bytes, and no key of ours need be able to have them.
No I/O here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kizuna.store.keys import Key


def shown(raw: bytes) -> str:
    """As text that `sent` brings back, whatever the bytes are."""
    return raw.decode(errors="surrogateescape")


def sent(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def raw_key(family: Key, root: str, name: bytes) -> bytes:
    """`build`, for whatever name."""
    return sent(root + family.beginning) + name
