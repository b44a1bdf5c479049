"""What gRPC puts into HTTP/2: messages, a status, a deadline. Does no I/O.

 0            1        5 ...
+------------+--------+---------+
| compressed | length | message |     one after the other, cut anywhere
+------------+--------+---------+
    u8 0, 1    u32
"""

from __future__ import annotations

import zlib

from kizuna.match.serving.http2.hpack import Headers, written

OK, UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 0, 2, 4, 8, 12, 13, 14

PREFIX_BYTES = 5
_CONTENT = (b"content-type", b"application/grpc")
_ACCEPTED = (b"grpc-accept-encoding", b"identity,gzip")
HEAD = written([(b":status", b"200"), _CONTENT, _ACCEPTED])
"""Of every answer."""
TRAILERS = written([(b"grpc-status", b"0")])
"""Of every answer that is whole."""
_LONGEST_TEXT = 2_048
_GZIP = 31
"""What zlib calls it."""
_UNIT_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


class Ended(Exception):
    """A call ends with this status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


class MessageReader:
    """Turns data, cut anywhere, into messages. `Ended` for what is none, or larger than `most_bytes`."""

    def __init__(self, most_bytes: int, *, is_gzipped: bool) -> None:
        self._most_bytes, self._is_gzipped = most_bytes, is_gzipped
        self._rest = bytearray()
        self._due = 0
        """When so much is there, the next message is whole; 0: its length is not known yet."""

    @property
    def is_within_one(self) -> bool:
        return bool(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        if not self._rest and _is_one(data) and len(data) <= self._most_bytes:
            return [data[PREFIX_BYTES:]]
        self._rest += data
        found = []
        while self._is_next_whole():
            found.append(self._next())
        return found

    def _is_next_whole(self) -> bool:
        if not self._due and len(self._rest) >= PREFIX_BYTES:
            self._due = PREFIX_BYTES + int.from_bytes(self._rest[1:PREFIX_BYTES], "big")
            # Refused on the prefix alone, so that nobody can make us keep what we will not take.
            if self._due - PREFIX_BYTES > self._most_bytes:
                raise self._too_large(f"of {self._due - PREFIX_BYTES} bytes")
        return 0 < self._due <= len(self._rest)

    def _next(self) -> bytes:
        message, is_compressed = bytes(self._rest[PREFIX_BYTES : self._due]), self._rest[0]
        del self._rest[: self._due]
        self._due = 0
        if is_compressed == 0:
            return message
        if is_compressed != 1 or not self._is_gzipped:
            raise Ended(INTERNAL, "a message is compressed, and it was not said how")
        return self._unpacked(message)

    def _unpacked(self, message: bytes) -> bytes:
        unpacking = zlib.decompressobj(_GZIP)
        try:
            found = unpacking.decompress(message, self._most_bytes + 1)
        except zlib.error as error:
            raise Ended(INTERNAL, "a message is no gzip") from error
        if len(found) > self._most_bytes:
            raise self._too_large("that is larger when it is unpacked")
        if not unpacking.eof:
            raise Ended(INTERNAL, "a message ends within its gzip")
        return found

    def _too_large(self, which: str) -> Ended:
        return Ended(RESOURCE_EXHAUSTED, f"a message {which}; {self._most_bytes} bytes are taken")


def _is_one(data: bytes) -> bool:
    """The usual case: exactly one message, not compressed."""
    return len(data) >= PREFIX_BYTES and data[0] == 0 and int.from_bytes(data[1:5], "big") == len(data) - PREFIX_BYTES


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def trailers(code: int, text: str) -> bytes:
    return written(_status(code, text))


def only_trailers(code: int, text: str) -> bytes:
    """Of an answer that has nothing else."""
    return written([(b":status", b"200"), _CONTENT, _ACCEPTED, *_status(code, text)])


def _status(code: int, text: str) -> list[tuple[bytes, bytes]]:
    message = [(b"grpc-message", _printable(text))] if text else []
    return [(b"grpc-status", str(code).encode()), *message]


def _printable(text: str) -> bytes:
    """Percent-encoded where it has to be, and cut where it is very long."""
    coded = [bytes([byte]) if 32 <= byte < 127 and byte != 37 else b"%%%02X" % byte for byte in text.encode()]
    return b"".join(coded[:_LONGEST_TEXT])


def timeout_s(headers: Headers) -> float | None:
    """How long the caller waits; None: as long as it takes. `Ended` for what is no time."""
    text = headers.get(b"grpc-timeout")
    if text is None:
        return None
    number, unit = text[:-1], _UNIT_S.get(text[-1:])
    if unit is None or not number.isdigit() or len(number) > 8:
        raise Ended(INTERNAL, "grpc-timeout is up to eight digits and a unit")
    return int(number) * unit


def is_gzipped(headers: Headers) -> bool:
    """`Ended` for what we cannot unpack."""
    encoding = headers.get(b"grpc-encoding", b"identity")
    if encoding not in (b"identity", b"gzip"):
        raise Ended(UNIMPLEMENTED, f"grpc-encoding {encoding.decode(errors='replace')} is not known here")
    return encoding == b"gzip"
