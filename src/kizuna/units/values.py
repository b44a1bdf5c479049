"""Values as they are written: bytes, and none of them larger than is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kizuna.codecs import RAW, TEXT
from kizuna.errors import TooLarge

if TYPE_CHECKING:
    from kizuna.codecs import Codec


def encoded(codec: Codec, value: Any, largest_bytes: int, what: str) -> bytes:
    """None, the result of a function that returns nothing, is no bytes where the codec has no word for it."""
    if type(value) is bytes and codec is RAW:
        raw = value
    else:
        raw = b"" if value is None and codec in (RAW, TEXT) else codec.encode(value)
    return raw if len(raw) <= largest_bytes else checked_size(raw, largest_bytes, what)


def checked_size(raw: bytes, largest_bytes: int, what: str) -> bytes:
    """The same bytes. TooLarge, which says `what` they are, if they are too many."""
    if len(raw) > largest_bytes:
        raise TooLarge(what, len(raw), largest_bytes, "units.largest_bytes")
    return raw
