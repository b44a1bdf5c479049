"""Bytes on a command line: given as an argument or on standard input, shown as text or as what they say."""

from __future__ import annotations

import sys
from typing import Any


def text_or_stdin(text: str) -> bytes:
    """The argument, of whatever bytes it is; or, for `-`, what comes on standard input."""
    return sys.stdin.buffer.read() if text == "-" else text.encode(errors="surrogateescape")


def readable(raw: bytes) -> Any:
    """For JSON output: JSON as what it says, anything else as text."""
    import msgspec

    try:
        return msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return as_text(raw)


def as_text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


def in_one_line(raw: bytes, most: int = 80) -> str:
    """For a table: what cannot be shown is escaped, what is long is cut."""
    text = as_text(raw[: 4 * most])
    shown = text if text.isprintable() else "".join(map(_shown, text))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _shown(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]
