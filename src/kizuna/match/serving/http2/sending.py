"""The half of a connection that sends: within the windows of the peer, and no faster than it reads. Does no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kizuna.match.serving.http2 import frames
from kizuna.match.serving.http2.faults import FLOW_CONTROL_ERROR, NO_ERROR, PROTOCOL_ERROR, Fault, StreamFault
from kizuna.match.serving.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    HEADERS,
    LARGEST_BYTES,
    LARGEST_WINDOW,
)
from kizuna.match.serving.http2.streams import Stream

# Who has more to send than that waits for its turn; others have something to send, too.
_UNWRITTEN_AT_MOST = 1 << 17
JUST_END = b"nothing"
"""For trailers: there are none, and yet the stream ends."""
# What may wait on one connection: more of it has only who asks, and does not take the answers.
_QUEUED_AT_MOST = 1 << 26


class Sender:
    """`on_output` is called when there is something to be written where there was nothing."""

    def __init__(self, on_output: Callable[[], None], on_gone: Callable[[Stream], None]) -> None:
        self._on_output, self._on_gone = on_output, on_gone
        self._out: list[bytes | memoryview] = []
        self._unwritten = 0
        """Bytes of data in it."""
        self._window = FIRST_WINDOW
        self._is_held_up = False
        self._queued = 0
        """Bytes in the queues of all streams."""
        self._waiting: dict[int, Stream] = {}
        """Those that have something in their queue and room in their window, in the order in which they are served."""

    @property
    def is_overfull(self) -> bool:
        """More waits to be sent than is kept for one peer."""
        return self._queued > _QUEUED_AT_MOST

    def take(self) -> bytes:
        """What is to be written now. When it is, `proceed`."""
        out, self._out, self._unwritten = self._out, [], 0
        return b"".join(out)

    def proceed(self) -> None:
        """With what had to wait: a frame of each in turn, so that a large answer does not keep small ones waiting."""
        while self._waiting and self._may_send():
            for stream in list(self._waiting.values()):
                self._send_some(stream)
                if not self._may_send():
                    return

    def _may_send(self) -> bool:
        return not self._is_held_up and self._window > 0 and self._unwritten <= _UNWRITTEN_AT_MOST

    def write(self, data: bytes | memoryview) -> None:
        if not self._out:
            self._on_output()
        self._out.append(data)

    def send(self, stream: Stream, head: bytes = b"", data: bytes = b"", trailers: bytes = b"") -> None:
        """What there is of it, in this order; trailers end the stream. To a stream that is gone, nothing is sent."""
        if stream.is_gone:
            return
        if head and data and trailers and stream.is_heard and self._has_room(stream, len(data)):
            self._send_whole(stream, head, data, trailers)
            return
        if head:
            self.write(frames.frame(HEADERS, END_HEADERS, stream.id, head))
        if data and not self._sent_at_once(stream, data):
            self._put_off(stream, data)
        if trailers:
            stream.trailers = trailers
            if stream.queue is None:
                self._finish(stream)

    def is_full(self, stream: Stream) -> bool:
        """Who has more to send should wait until the listener `has_room`."""
        return stream.queue is not None and not stream.is_gone

    def forget(self, stream: Stream) -> None:
        if stream.queue is not None:
            self._queued -= sum(map(len, stream.queue))
            stream.queue = None
            self._waiting.pop(stream.id, None)

    # what the peer allows

    def allow(self, more: int) -> None:
        if more == 0:
            raise Fault(PROTOCOL_ERROR, "a window that grows by nothing")
        self._window += more
        if self._window > LARGEST_WINDOW:
            raise Fault(FLOW_CONTROL_ERROR, "the window of the connection is too large")
        self.proceed()

    def allow_stream(self, stream: Stream, more: int) -> None:
        if more == 0:
            raise StreamFault(stream.id, PROTOCOL_ERROR)
        stream.window += more
        if stream.window > LARGEST_WINDOW:
            raise StreamFault(stream.id, FLOW_CONTROL_ERROR)
        self.revive(stream)
        self.proceed()

    def revive(self, stream: Stream) -> None:
        """Its window has changed."""
        if stream.queue is not None and stream.window > 0:
            self._waiting[stream.id] = stream

    def hold_up(self) -> None:
        """The peer does not read what was written."""
        self._is_held_up = True

    def go_on(self) -> None:
        self._is_held_up = False
        self.proceed()

    # data

    def _has_room(self, stream: Stream, size: int) -> bool:
        return (
            stream.queue is None
            and not self._is_held_up
            and self._unwritten <= _UNWRITTEN_AT_MOST
            and size <= self._window
            and size <= stream.window
            and size <= LARGEST_BYTES
        )

    def _sent_at_once(self, stream: Stream, data: bytes) -> bool:
        has_room = self._has_room(stream, len(data))
        if has_room:
            self._write_data(stream, data)
        return has_room

    def _send_whole(self, stream: Stream, head: bytes, data: bytes, trailers: bytes) -> None:
        """The usual case, at once: a small answer to a request that has come to its end."""
        id_, size = stream.id, len(data)
        self._window -= size
        self._unwritten += size
        self.write(
            frames.head(len(head), HEADERS, END_HEADERS, id_) + head
            + frames.head(size, DATA, 0, id_) + data
            + frames.head(len(trailers), HEADERS, END_HEADERS | END_STREAM, id_) + trailers
        )  # fmt: skip
        self._on_gone(stream)

    def _write_data(self, stream: Stream, data: bytes | memoryview) -> None:
        size = len(data)
        self._window -= size
        stream.window -= size
        self._unwritten += size
        self.write(frames.head(size, DATA, 0, stream.id))
        self.write(data)

    def _put_off(self, stream: Stream, data: bytes) -> None:
        if stream.queue is None:
            stream.queue = deque()
        stream.queue.append(memoryview(data))
        self._queued += len(data)
        if self.is_overfull:
            # So that somebody looks.
            self._on_output()
        self.revive(stream)
        self.proceed()

    def _send_some(self, stream: Stream) -> None:
        assert stream.queue is not None  # noqa: S101 - who waits has one
        room = min(self._window, stream.window, LARGEST_BYTES)
        data = stream.queue.popleft()
        self._write_data(stream, data[:room])
        self._queued -= min(len(data), room)
        if len(data) > room:
            stream.queue.appendleft(data[room:])
        if not stream.queue:
            self._has_sent_all(stream)
        elif stream.window <= 0:
            del self._waiting[stream.id]

    def _has_sent_all(self, stream: Stream) -> None:
        self.forget(stream)
        if stream.trailers:
            self._finish(stream)
        elif stream.listener is not None:
            stream.listener.has_room()

    def _finish(self, stream: Stream) -> None:
        if stream.trailers is JUST_END:
            self.write(frames.frame(DATA, END_STREAM, stream.id))
        else:
            self.write(frames.frame(HEADERS, END_HEADERS | END_STREAM, stream.id, stream.trailers))
        if not stream.is_heard:
            # The answer does not depend on what is still to come.
            self.write(frames.rst_stream(stream.id, NO_ERROR))
        self._on_gone(stream)
