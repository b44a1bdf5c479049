"""The file that a backup is: blocks of records, each of which can be checked and read by itself.

    file      header block, data blocks numbered from 1, footer block; nothing before, between or after them

     0      4      5        9         13       17       21         25        29
    +------+------+--------+---------+--------+--------+----------+---------+--------------+
    | KZNB | kind | number | records | plain  | stored | crc32 of | crc32 of| stored bytes |
    |      |      |        |         | length | length | stored   | 0 to 25 | (zlib)       |
    +------+------+--------+---------+--------+--------+----------+---------+--------------+
      4 B    u8     u32      u32       u32      u32      u32        u32

    H header  JSON: format, id, created_ms, roots, patterns, server
    D data    MessagePack: a list of records (`Record`)
    F footer  JSON: keys, records, blocks, and the sha256 of everything before the footer; what was left out

Integers are big-endian. Values are logical, not the server's own dump: any Redis or Valkey can take them. A value that
is too large for one record goes over several, in order. This module does no I/O.
"""

from __future__ import annotations

import secrets
import struct
import zlib
from typing import Literal, NamedTuple

import msgspec

FORMAT = 1
BLOCK_BYTES = 256 * 1024
"""A data block is closed when it holds so much, before compression."""

SYNC = b"KZNB"
_FRAME = struct.Struct(">4sBIIIII")
_CRC = struct.Struct(">I")
FRAME_BYTES = _FRAME.size + _CRC.size
HEADER, DATA, FOOTER = b"HDF"

ValueType = Literal["string", "list", "set", "hash", "zset", "stream"]


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A key with its value, or one part of a large value."""

    key: bytes
    type: ValueType
    ttl_ms: int
    """What was left of its time when it was read; -1 if it does not end."""
    read_at_ms: int
    """The server's time at that moment."""
    part: int
    """0, 1, 2 … of the same key, one right behind the other."""
    last: bool
    items: list[bytes | list[bytes]]
    """string: a piece of it; list, set: items; hash: field, value, …; zset: score, member, …; stream: of each entry
    [id, field, value, …]."""
    marks: list[bytes]
    """Of a stream, in its last part: the last id that was given, then each group and the id that it has come to."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    id: str
    """No other backup has it."""
    created_ms: int
    roots: list[str]
    patterns: list[str]
    server: str


class Footer(msgspec.Struct, frozen=True, kw_only=True):
    keys: int
    records: int
    blocks: int
    sha256: str
    vanished: int = 0
    """Keys that ended between being found and being read."""
    strange: dict[str, int] = {}
    """Keys of types that are not backed up, by type."""
    moved_slots: int = 0
    """Slots of a cluster that changed hands meanwhile: keys in them may be missing."""


class Frame(NamedTuple):
    """What stands before the bytes of a block."""

    kind: int
    number: int
    records: int
    plain: int
    stored: int
    crc: int

    def encode(self) -> bytes:
        start = _FRAME.pack(SYNC, *self)
        return start + _CRC.pack(zlib.crc32(start))

    @classmethod
    def decode(cls, raw: bytes) -> Frame:
        """ValueError if these bytes are no frame, or not as they were written."""
        if len(raw) < FRAME_BYTES:
            raise ValueError("the file ends within the beginning of a block")
        start, (crc,) = raw[: _FRAME.size], _CRC.unpack_from(raw, _FRAME.size)
        if not start.startswith(SYNC) or zlib.crc32(start) != crc:
            raise ValueError("there should be the beginning of a block")
        return cls(*_FRAME.unpack(start)[1:])


def new_header(*, created_ms: int, roots: list[str], patterns: list[str], server: str) -> Header:
    return Header(
        format=FORMAT, id=secrets.token_hex(8), created_ms=created_ms, roots=roots, patterns=patterns, server=server
    )
