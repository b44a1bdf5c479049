"""The other end of a connection, without a network: what a client sends, byte by byte, and what it is answered."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kizuna.match.serving.http2 import frames
from kizuna.match.serving.http2.connection import Connection
from kizuna.match.serving.http2.faults import Fault
from kizuna.match.serving.http2.hpack import HeaderReader, Headers, written
from kizuna.match.serving.http2.streams import Stream

GREETING = frames.PREFACE + frames.settings()
POST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/shop.Shop/Buy"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def split(data: bytes) -> Iterator[Frame]:
    while data:
        high, low, kind, flags, stream = frames.unpack_head(data)
        end = 9 + (high << 16 | low)
        yield Frame(kind, flags, stream, data[9:end])
        data = data[end:]


def request(stream: int, body: bytes | None = b"", headers: list[tuple[bytes, bytes]] | None = None) -> bytes:
    """All of a call; None: its body is still to come."""
    ends = frames.END_HEADERS
    head = frames.frame(frames.HEADERS, ends, stream, written(POST if headers is None else headers))
    return head if body is None else head + data(stream, body)


def data(stream: int, body: bytes, *, ends: bool = True) -> bytes:
    return frames.frame(frames.DATA, frames.END_STREAM if ends else 0, stream, body)


def message(body: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(body)) + body


class Listening:
    """Keeps what it is told about a stream."""

    def __init__(self, stream: Stream, headers: Headers | None) -> None:
        self.stream, self.headers = stream, headers
        self.body, self.is_whole, self.is_reset, self.had_room = b"", False, False, 0

    def data(self, data: bytes, *, is_last: bool) -> None:
        self.body += data
        self.is_whole = is_last

    def reset(self) -> None:
        self.is_reset = True

    def has_room(self) -> None:
        self.had_room += 1


class Server:
    """A connection, and the listeners of its streams."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.outputs = 0
        self.listening: dict[int, Listening] = {}
        self.connection = Connection(self._accept, self._output, lambda: self.now_s)
        self.connection.greet()
        self.said = b""

    @classmethod
    def greeted(cls) -> Server:
        server = cls()
        server.connection.read(GREETING)
        server.answers()
        return server

    def answers(self) -> list[Frame]:
        """Since the last time."""
        said = b""
        while taken := self.connection.take():
            said += taken
            self.connection.proceed()
        self.said += said
        return list(split(said))

    def fault(self, sent: bytes) -> Fault | None:
        """What it makes of these bytes."""
        try:
            self.connection.read(sent)
        except Fault as fault:
            return fault
        return None

    def _accept(self, stream: Stream, headers: Headers | None, *, is_last: bool) -> Listening:
        listening = self.listening[stream.id] = Listening(stream, headers)
        listening.is_whole = is_last
        return listening

    def _output(self) -> None:
        self.outputs += 1


def headers_of(answers: list[Frame]) -> list[Headers]:
    reader = HeaderReader(100_000)
    found = [reader.read(frame.payload) for frame in answers if frame.kind == frames.HEADERS]
    return [headers for headers in found if headers is not None]
