"""A picture in memory, and the bytes of its PNG file. Does no I/O.

signature | IHDR: size, 8 bits, RGB | IDAT: compressed rows, each behind a 0 | IEND
chunk = length (u32) | name | data | CRC-32 of name and data, all big-endian
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from kizuna.match.simulation.picture.font import enlarged, text_width

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB, _BITS = 2, 8


class Colour(NamedTuple):
    red: int
    green: int
    blue: int

    def over(self, below: bytes, cover: float) -> bytes:
        """This colour on another one, which it covers by so much."""
        return bytes(round(top * cover + under * (1 - cover)) for top, under in zip(self, below, strict=True))


class Canvas:
    """Places are counted from the left and the top. What is drawn beyond the edge is not seen."""

    def __init__(self, width: int, height: int, ground: Colour) -> None:
        self.width, self.height = width, height
        self._rows = [bytearray(bytes(ground) * width) for _ in range(height)]

    def box(self, left: int, top: int, width: int, height: int, colour: Colour) -> None:
        left, right = max(left, 0), min(left + width, self.width)
        if right > left:
            for row in self._rows[max(top, 0) : max(top + height, 0)]:
                row[3 * left : 3 * right] = bytes(colour) * (right - left)

    def dot(self, x: int, y: int, colour: Colour, cover: float) -> None:
        if cover and 0 <= x < self.width and 0 <= y < self.height:
            place = slice(3 * x, 3 * x + 3)
            self._rows[y][place] = colour.over(bytes(self._rows[y][place]), cover)

    def text(self, x: int, y: int, text: str, colour: Colour, scale: int = 2, *, align: float = 0.0) -> None:
        """`y` is the top of its capitals; `align` 0 begins at `x`, 0.5 is centred there, 1 ends there."""
        x -= round(text_width(text, scale) * align)
        for character in text:
            glyph = enlarged(character, scale)
            for down, row in enumerate(glyph):
                for right, cover in enumerate(row):
                    self.dot(x + right, y + down, colour, cover)
            x += len(glyph[0]) + scale

    def png(self) -> bytes:
        header = struct.pack(">IIBBBBB", self.width, self.height, _BITS, _RGB, 0, 0, 0)
        rows = b"".join(b"\0" + row for row in self._rows)
        chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
        return _SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
