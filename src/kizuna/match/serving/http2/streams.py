"""One request and its answer, on a connection that has many."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from kizuna.match.serving.http2.hpack import Headers


class Listener(Protocol):
    """Whoever answers the request. What it is told, it is told by the connection while that reads."""

    def data(self, data: bytes, *, is_last: bool) -> None:
        """More of the request."""

    def reset(self) -> None:
        """Nobody waits for the answer any more."""

    def has_room(self) -> None:
        """What was sent is on its way."""


class Accepting(Protocol):
    def __call__(self, stream: Stream, headers: Headers | None, *, is_last: bool) -> Listener:
        """A request has begun; None: its headers are more than may be sent."""


class Stream:
    """
              END_STREAM came
    open ───────────────────────> answering ──trailers sent──> gone
     └──trailers sent, RST_STREAM sent or come──────────────────^
    """

    __slots__ = ("id", "is_gone", "is_heard", "listener", "queue", "taken", "trailers", "window", "window_here")

    def __init__(self, id_: int, window: int, window_here: int) -> None:
        self.id = id_
        self.window = window
        """How much we may send."""
        self.window_here = window_here
        """How much the peer may send."""
        self.taken = 0
        """How much came since the peer was last told that it may send more."""
        self.is_heard = False
        """The whole request has come."""
        self.is_gone = False
        self.queue: deque[memoryview] | None = None
        """What is to be sent when there is room."""
        self.trailers = b""
        """What is to be sent after that."""
        self.listener: Listener | None = None
