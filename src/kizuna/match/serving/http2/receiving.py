"""The windows that we give: how much a peer may send before it hears that what it sent was taken. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable

from kizuna.match.serving.http2 import frames
from kizuna.match.serving.http2.faults import FLOW_CONTROL_ERROR, Fault, StreamFault
from kizuna.match.serving.http2.streams import Stream

WINDOW = 1 << 20
"""Of the connection."""
STREAM_WINDOW = 1 << 18


class Receiver:
    """`write` sends a frame."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self.window, self._taken = WINDOW, 0

    def count(self, size: int) -> None:
        """Data came, of whatever stream. The connection is told at once that it may send more: what is kept of it is
        the business of streams."""
        self.window -= size
        if self.window < 0:
            raise Fault(FLOW_CONTROL_ERROR, "more data than the connection was allowed")
        self._taken += size
        if self._taken >= WINDOW // 2:
            self._write(frames.window_update(0, self._taken))
            self.window += self._taken
            self._taken = 0

    def count_of(self, stream: Stream, size: int) -> None:
        """The same of one stream; it hears when the data `was_taken`."""
        stream.window_here -= size
        if stream.window_here < 0:
            raise StreamFault(stream.id, FLOW_CONTROL_ERROR)

    def was_taken(self, stream: Stream, size: int) -> None:
        stream.taken += size
        if stream.taken >= STREAM_WINDOW // 2 and not stream.is_heard and not stream.is_gone:
            self._write(frames.window_update(stream.id, stream.taken))
            stream.window_here += stream.taken
            stream.taken = 0
