"""HPACK (RFC 7541): what headers look like on the wire. Does no I/O.

Reads whatever a peer may send. Writes literals only, that nobody has to remember: what we send is constant but for a
status, and so needs no table on either side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from kizuna.match.serving.http2 import huffman
from kizuna.match.serving.http2.faults import COMPRESSION_ERROR, Fault

Headers = Mapping[bytes, bytes]

_PAIRS = [
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"), (b":path", b"/index.html"),
    (b":scheme", b"http"), (b":scheme", b"https"), (b":status", b"200"), (b":status", b"204"), (b":status", b"206"),
    (b":status", b"304"), (b":status", b"400"), (b":status", b"404"), (b":status", b"500"), (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"), (b"accept-language", b""), (b"accept-ranges", b""), (b"accept", b""),
    (b"access-control-allow-origin", b""), (b"age", b""), (b"allow", b""), (b"authorization", b""),
    (b"cache-control", b""), (b"content-disposition", b""), (b"content-encoding", b""), (b"content-language", b""),
    (b"content-length", b""), (b"content-location", b""), (b"content-range", b""), (b"content-type", b""),
    (b"cookie", b""), (b"date", b""), (b"etag", b""), (b"expect", b""), (b"expires", b""), (b"from", b""),
    (b"host", b""), (b"if-match", b""), (b"if-modified-since", b""), (b"if-none-match", b""), (b"if-range", b""),
    (b"if-unmodified-since", b""), (b"last-modified", b""), (b"link", b""), (b"location", b""),
    (b"max-forwards", b""), (b"proxy-authenticate", b""), (b"proxy-authorization", b""), (b"range", b""),
    (b"referer", b""), (b"refresh", b""), (b"retry-after", b""), (b"server", b""), (b"set-cookie", b""),
    (b"strict-transport-security", b""), (b"transfer-encoding", b""), (b"user-agent", b""), (b"vary", b""),
    (b"via", b""), (b"www-authenticate", b""),
]  # fmt: skip
_FIRST_OF_TABLE = len(_PAIRS) + 1
_TABLE_BYTES = 4_096
"""Of what a peer may have us remember; what everybody has unless told otherwise."""
_ENTRY_BYTES = 32
"""What an entry counts for, beside its name and value."""
_Entry = tuple[bytes, bytes, int]
"""A name, a value, and what they count for."""
_STATIC: list[_Entry] = [(name, value, len(name) + len(value) + _ENTRY_BYTES) for name, value in [(b"", b""), *_PAIRS]]
"""By number; there is no number 0."""
_REMEMBERED_BLOCKS = 64
_REMEMBERED_BYTES = 512
_LONGEST_NUMBER_BITS = 28


class HeaderReader:
    """Of one connection. What it returns is not to be changed. Of a name that comes twice, the last value counts."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._table: deque[_Entry] = deque()
        self._table_bytes, self._table_most = 0, _TABLE_BYTES
        # The same caller sends the same block again and again; it means the same until the table changes.
        self._known: dict[bytes, dict[bytes, bytes]] = {}

    def read(self, block: bytes) -> Headers | None:
        """None if they are more than may be sent: the table is as it should be nevertheless. Fault for nonsense."""
        known = self._known.get(block)
        if known is not None:
            return known
        try:
            return self._read(block)
        except IndexError:
            raise Fault(COMPRESSION_ERROR, "headers end too early") from None

    def _read(self, block: bytes) -> Headers | None:
        headers: dict[bytes, bytes] = {}
        at, end, size, table_changed = 0, len(block), 0, False
        while at < end:
            first = block[at]
            if 0x80 < first < 0xFF:
                # The usual case, and so by itself: a header of a table, by a number of one byte.
                name, value, more = self._entry(first & 0x7F)
                at += 1
            elif first & 0x80:
                number, at = _number(block, at, 7)
                if number == 0:
                    raise Fault(COMPRESSION_ERROR, "there is no header 0")
                name, value, more = self._entry(number)
            elif first & 0xE0 == 0x20:
                if headers:
                    raise Fault(COMPRESSION_ERROR, "the table changes its size within headers")
                number, at = _number(block, at, 5)
                self._resize(number)
                table_changed = True
                continue
            else:
                is_remembered = first & 0x40
                number, at = _number(block, at, 6 if is_remembered else 4)
                name, at = (self._entry(number)[0], at) if number else _text(block, at)
                value, at = _text(block, at)
                more = len(name) + len(value) + _ENTRY_BYTES
                if is_remembered:
                    self._remember((name, value, more))
                    table_changed = True
            size += more
            if size <= self._most_bytes:
                headers[name] = value
        self._keep(block, headers, table_changed, size)
        return headers if size <= self._most_bytes else None

    def _keep(self, block: bytes, headers: dict[bytes, bytes], table_changed: bool, size: int) -> None:
        if table_changed:
            self._known.clear()
        elif size <= self._most_bytes and len(block) <= _REMEMBERED_BYTES and len(self._known) < _REMEMBERED_BLOCKS:
            self._known[block] = headers

    def _entry(self, number: int) -> _Entry:
        try:
            return _STATIC[number] if number < _FIRST_OF_TABLE else self._table[number - _FIRST_OF_TABLE]
        except IndexError:
            raise Fault(COMPRESSION_ERROR, "a header is in no table") from None

    def _remember(self, entry: _Entry) -> None:
        self._table.appendleft(entry)
        self._table_bytes += entry[2]
        self._make_room()

    def _resize(self, most: int) -> None:
        if most > _TABLE_BYTES:
            raise Fault(COMPRESSION_ERROR, f"the table cannot have {most} bytes; {_TABLE_BYTES} at most")
        self._table_most = most
        self._make_room()

    def _make_room(self) -> None:
        while self._table_bytes > self._table_most:
            self._table_bytes -= self._table.pop()[2]


def written(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A block of them."""
    return b"".join(_written(name, value) for name, value in headers)


def _written(name: bytes, value: bytes) -> bytes:
    if (name, value) in _PAIRS:
        return bytes([0x80 | _PAIRS.index((name, value)) + 1])
    return b"\0" + _length(name) + name + _length(value) + value


def _length(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes([len(text)])
    rest, found = len(text) - 127, bytearray([127])
    while rest >= 128:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest])


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """A number that begins in the last bits of a byte, and where the next thing begins."""
    most = (1 << bits) - 1
    number = block[at] & most
    at += 1
    if number < most:
        return number, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        number += (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
        if shift >= _LONGEST_NUMBER_BITS:
            raise Fault(COMPRESSION_ERROR, "a number is too long")


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    is_coded = block[at] & 0x80
    length, at = _number(block, at, 7)
    text = block[at : at + length]
    if len(text) < length:
        raise Fault(COMPRESSION_ERROR, "a header ends too early")
    return huffman.decode(text) if is_coded else text, at + length
