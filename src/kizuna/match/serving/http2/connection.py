"""A connection of HTTP/2, as the server sees it: bytes in, streams out, and what they send back. Does no I/O.

    bytes ──read──> frames ──> streams: a listener for each, told of data and of its end
    bytes <──take── frames <── send, reset, go_away

A Fault is the end of the connection, after the peer was told why. Whatever a peer sends, nothing else is raised.
"""

from __future__ import annotations

from collections.abc import Callable

from kizuna.match.serving.http2 import frames
from kizuna.match.serving.http2.blocks import MOST_HEADER_BYTES, Block
from kizuna.match.serving.http2.faults import (
    CANCEL,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    NO_ERROR,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    STREAM_CLOSED,
    Fault,
    StreamFault,
)
from kizuna.match.serving.http2.frames import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEAD_BYTES,
    LARGEST_BYTES,
    LARGEST_WINDOW,
    PREFACE,
    SETTINGS,
    STREAM_BITS,
    unpack_head,
)
from kizuna.match.serving.http2.hpack import HeaderReader
from kizuna.match.serving.http2.patience import Patience
from kizuna.match.serving.http2.receiving import STREAM_WINDOW, WINDOW, Receiver
from kizuna.match.serving.http2.sending import Sender
from kizuna.match.serving.http2.streams import Accepting, Stream

_MOST_STREAMS = 16_384
# A stream that is opened and dropped before anybody could look at it.
_DROPPED_AT_ONCE = 16.0
# How many streams can be changed for what a frame costs.
_STREAMS_LIKE_A_FRAME = 16


class Connection:
    """`accept` makes a listener of each stream; `on_output` is called when there is something to `take`."""

    def __init__(self, accept: Accepting, on_output: Callable[[], None], now_s: Callable[[], float]) -> None:
        self._accept = accept
        self._sender = Sender(on_output, self._remove)
        self._receiver = Receiver(self._sender.write)
        self._headers = HeaderReader(MOST_HEADER_BYTES)
        self._patience = Patience(now_s)
        self._rest = b""
        self._is_greeted = self._has_settings = False
        self._is_leaving = False
        self._last_stream = 0
        self._first_window = frames.FIRST_WINDOW
        self._block: Block | None = None
        """Headers of which more is to come: then nothing else may."""
        self._opened_now: set[int] = set()
        """Since `read` was called."""
        self.streams: dict[int, Stream] = {}
        self.take, self.send, self.is_full = self._sender.take, self._sender.send, self._sender.is_full
        self.took = self._receiver.was_taken
        self.hold_up, self.go_on, self.proceed = self._sender.hold_up, self._sender.go_on, self._sender.proceed
        self._handlers = (
            self._on_data, self._on_headers, self._on_priority, self._on_rst_stream, self._on_settings, self._on_push,
            self._on_ping, self._on_goaway, self._on_window_update, self._on_continuation,
        )  # fmt: skip

    @property
    def is_ready(self) -> bool:
        """The peer has said that it speaks HTTP/2."""
        return self._has_settings

    @property
    def is_overfull(self) -> bool:
        """The peer asks, and does not take the answers."""
        return self._sender.is_overfull

    @property
    def is_done(self) -> bool:
        """It takes no more streams, and none is left."""
        return self._is_leaving and not self.streams

    def greet(self) -> None:
        """What a server says first."""
        self._sender.write(
            frames.settings(
                (frames.MAX_CONCURRENT_STREAMS, _MOST_STREAMS),
                (frames.INITIAL_WINDOW_SIZE, STREAM_WINDOW),
                (frames.MAX_HEADER_LIST_SIZE, MOST_HEADER_BYTES),
            )
            + frames.window_update(0, WINDOW - frames.FIRST_WINDOW)
        )

    def read(self, data: bytes) -> None:
        """Raises Fault; then nothing more may be read."""
        data = self._rest + data if self._rest else data
        at = 0
        if not self._is_greeted:
            if len(data) < len(PREFACE):
                self._rest = data
                return
            if not data.startswith(PREFACE):
                raise Fault(PROTOCOL_ERROR, "this is no HTTP/2")
            self._is_greeted, at = True, len(PREFACE)
        self._opened_now.clear()
        self._rest = data[self._read_frames(data, at) :]

    def _read_frames(self, data: bytes, at: int) -> int:
        """Where what is left begins."""
        end = len(data)
        while end - at >= HEAD_BYTES:
            high, low, kind, flags, stream = unpack_head(data, at)
            length = high << 16 | low
            if length > LARGEST_BYTES:
                raise Fault(FRAME_SIZE_ERROR, f"a frame of {length} bytes; {LARGEST_BYTES} are taken")
            after = at + HEAD_BYTES + length
            if after > end:
                break
            stream &= STREAM_BITS
            if self._block is not None or not self._has_settings:
                self._check_order(kind, flags, stream)
            try:
                if kind < len(self._handlers):
                    self._handlers[kind](flags, stream, data[at + HEAD_BYTES : after])
                else:
                    # Of an extension that we do not know.
                    self._patience.use()
            except StreamFault as fault:
                self._patience.use()
                self._reset(fault.stream, fault.code)
            at = after
        return at

    def _check_order(self, kind: int, flags: int, stream: int) -> None:
        if not self._has_settings and (kind != SETTINGS or flags & ACK):
            raise Fault(PROTOCOL_ERROR, "settings have to come first")
        if self._block is not None and (kind != CONTINUATION or stream != self._block.stream):
            raise Fault(PROTOCOL_ERROR, "something else came within headers")

    # requests

    def _on_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if stream % 2 == 0:
            raise Fault(PROTOCOL_ERROR, f"{stream} is no stream of a client")
        block = payload
        if flags & (frames.PADDED | frames.HAS_PRIORITY):
            block = frames.without_priority(flags, frames.without_padding(flags, payload))
        if flags & END_HEADERS:
            self._open(stream, block, is_last=bool(flags & END_STREAM))
        else:
            self._block = Block(stream, block, is_last=bool(flags & END_STREAM))

    def _on_continuation(self, flags: int, _: int, payload: bytes) -> None:
        block = self._block
        if block is None:
            raise Fault(PROTOCOL_ERROR, "headers go on that have not begun")
        block.add(payload)
        if flags & END_HEADERS:
            self._block = None
            self._open(block.stream, block.bytes, is_last=block.is_last)

    def _open(self, id_: int, block: bytes, *, is_last: bool) -> None:
        headers = self._headers.read(block)
        if id_ <= self._last_stream:
            self._end_request(id_, is_last=is_last)
            return
        self._last_stream = id_
        if self._is_leaving or len(self.streams) >= _MOST_STREAMS:
            raise StreamFault(id_, REFUSED_STREAM)
        self._patience.thank()
        stream = Stream(id_, self._first_window, STREAM_WINDOW)
        stream.is_heard = is_last
        self.streams[id_] = stream
        self._opened_now.add(id_)
        stream.listener = self._accept(stream, headers, is_last=is_last)

    def _end_request(self, id_: int, *, is_last: bool) -> None:
        """Headers after the data: they can only be its end."""
        self._patience.use()
        stream = self.streams.get(id_)
        if stream is None:
            raise StreamFault(id_, STREAM_CLOSED)
        if not is_last or stream.is_heard:
            raise StreamFault(id_, PROTOCOL_ERROR)
        self._tell(stream, b"", is_last=True)

    def _on_data(self, flags: int, id_: int, payload: bytes) -> None:
        if id_ == 0 or id_ > self._last_stream:
            raise Fault(PROTOCOL_ERROR, "data of a stream that was not opened")
        # Also of streams that are gone.
        self._receiver.count(len(payload))
        data = frames.without_padding(flags, payload) if flags & frames.PADDED else payload
        is_last = bool(flags & END_STREAM)
        if not data and not is_last:
            self._patience.use()
        stream = self.streams.get(id_)
        if stream is None:
            # It was under way when we ended the stream.
            self._patience.use()
            return
        if stream.is_heard:
            raise StreamFault(id_, STREAM_CLOSED)
        self._receiver.count_of(stream, len(payload))
        # Of padding nobody has anything to take.
        stream.taken += len(payload) - len(data)
        self._tell(stream, data, is_last=is_last)

    def _tell(self, stream: Stream, data: bytes, *, is_last: bool) -> None:
        stream.is_heard = is_last
        if stream.listener is not None:
            stream.listener.data(data, is_last=is_last)

    def _on_rst_stream(self, _: int, id_: int, payload: bytes) -> None:
        frames.read_u32(payload)
        if id_ == 0 or id_ > self._last_stream:
            raise Fault(PROTOCOL_ERROR, "a stream is dropped that was not opened")
        self._patience.use(_DROPPED_AT_ONCE if id_ in self._opened_now else 1.0)
        stream = self.streams.get(id_)
        if stream is not None:
            self._drop(stream)

    # the rest

    def _on_settings(self, flags: int, stream: int, payload: bytes) -> None:
        if stream:
            raise Fault(PROTOCOL_ERROR, "settings belong to the connection")
        self._patience.use()
        if flags & ACK:
            if payload:
                raise Fault(FRAME_SIZE_ERROR, "settings that are confirmed are empty")
            return
        for setting in frames.read_settings(payload):
            self._set(*setting)
        self._has_settings = True
        self._sender.write(frames.frame(SETTINGS, ACK, 0))
        self._sender.proceed()

    def _set(self, name: int, value: int) -> None:
        if name == frames.INITIAL_WINDOW_SIZE:
            if value > LARGEST_WINDOW:
                raise Fault(FLOW_CONTROL_ERROR, "the first window of streams is too large")
            self._patience.use(len(self.streams) / _STREAMS_LIKE_A_FRAME)
            for stream in self.streams.values():
                stream.window += value - self._first_window
                if stream.window > LARGEST_WINDOW:
                    raise Fault(FLOW_CONTROL_ERROR, "the window of a stream is too large")
                self._sender.revive(stream)
            self._first_window = value
        elif name == frames.MAX_FRAME_SIZE and not LARGEST_BYTES <= value < 1 << 24:
            raise Fault(PROTOCOL_ERROR, "no size for frames")

    def _on_ping(self, flags: int, stream: int, payload: bytes) -> None:
        if stream:
            raise Fault(PROTOCOL_ERROR, "pings belong to the connection")
        if len(payload) != 8:
            raise Fault(FRAME_SIZE_ERROR, "a ping has eight bytes")
        self._patience.use()
        if not flags & ACK:
            self._sender.write(frames.frame(frames.PING, ACK, 0, payload))

    def _on_window_update(self, _: int, id_: int, payload: bytes) -> None:
        more = frames.read_u32(payload) & LARGEST_WINDOW
        self._patience.use()
        if id_ == 0:
            self._sender.allow(more)
        elif id_ > self._last_stream:
            raise Fault(PROTOCOL_ERROR, "a window of a stream that was not opened")
        elif (stream := self.streams.get(id_)) is not None:
            self._sender.allow_stream(stream, more)

    def _on_priority(self, _: int, stream: int, payload: bytes) -> None:
        """Nobody heeds them any more."""
        if stream == 0:
            raise Fault(PROTOCOL_ERROR, "a priority belongs to a stream")
        self._patience.use()
        if len(payload) != 5:
            raise StreamFault(stream, FRAME_SIZE_ERROR)

    def _on_push(self, *_: object) -> None:
        raise Fault(PROTOCOL_ERROR, "clients have nothing to push")

    def _on_goaway(self, _: int, stream: int, payload: bytes) -> None:
        """It opens no more streams; those that are open are answered."""
        if stream:
            raise Fault(PROTOCOL_ERROR, "a goodbye belongs to the connection")
        if len(payload) < 8:
            raise Fault(FRAME_SIZE_ERROR, "a goodbye ends too early")
        self._patience.use()
        self._is_leaving = True

    # ends

    def ping(self) -> None:
        self._sender.write(frames.frame(frames.PING, 0, 0, b"are-you?"))

    def reset(self, stream: Stream, code: int = CANCEL) -> None:
        """Nothing more of it is sent or heard. The listener is not told."""
        if not stream.is_gone:
            self._sender.write(frames.rst_stream(stream.id, code))
            self._remove(stream)

    def go_away(self, code: int = NO_ERROR, text: str = "") -> None:
        """No more streams; those that are open go on."""
        if not self._is_leaving or code != NO_ERROR:
            self._is_leaving = True
            self._sender.write(frames.goaway(self._last_stream, code, text))

    def drop_all(self) -> None:
        for stream in list(self.streams.values()):
            self._drop(stream)

    def _reset(self, id_: int, code: int) -> None:
        self._sender.write(frames.rst_stream(id_, code))
        stream = self.streams.get(id_)
        if stream is not None:
            self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        self._remove(stream)
        if stream.listener is not None:
            stream.listener.reset()

    def _remove(self, stream: Stream) -> None:
        stream.is_gone = True
        self._sender.forget(stream)
        self.streams.pop(stream.id, None)
