"""One call: from its headers to its trailers.

headers ──> request ──whole──> the method works ──> answers ──> trailers
               │                    │
               └──too large ────────┴──deadline, error──> trailers, and what works is cancelled
                                    └──the caller leaves──> what works is cancelled
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kizuna.match.serving.http2 import messages
from kizuna.match.serving.http2.connection import Connection
from kizuna.match.serving.http2.faults import PROTOCOL_ERROR
from kizuna.match.serving.http2.hpack import Headers, written
from kizuna.match.serving.http2.messages import HEAD, TRAILERS, Ended, MessageReader, framed
from kizuna.match.serving.http2.streams import Listener, Stream
from kizuna.match.serving.http2.web_calls import WebCall, scope_of

if TYPE_CHECKING:
    from kizuna.asgi import Application

log = logging.getLogger("kizuna.match.serving")

_NO_GRPC = written([(b":status", b"415")])
_NO_POST = written([(b":status", b"405")])
# How many of the largest requests one connection may be sending at a time.
_LARGEST_TOGETHER = 4


@dataclass(frozen=True)
class Method:
    """What answers: takes a request, or requests that still come; returns an answer to be awaited, or some to be
    iterated over. All of them are bytes. `Ended` is a status; anything else it raises is a mistake of ours."""

    answer: Callable[[Any], Any]
    takes_many: bool = False
    gives_many: bool = False
    is_endless: bool = False
    """It goes on until the caller leaves: a server that stops ends it, and does not wait for it."""


Methods = Mapping[bytes, Method]
"""By path."""


@dataclass(frozen=True)
class Web:
    """Whoever answers what is no gRPC, and how it hears that it is over."""

    app: Application
    stopping: asyncio.Event


class Calls:
    """Of one connection. `tasks` are those who work on calls of any; without `web`, what is no gRPC is refused."""

    def __init__(
        self, methods: Methods, most_bytes: int, tasks: set[asyncio.Task[None]], web: Web | None = None
    ) -> None:
        self.methods, self.most_bytes, self._web = methods, most_bytes, web
        self.most_bytes_together = most_bytes * _LARGEST_TOGETHER
        self.bytes_waiting = 0
        """Of requests that are not whole yet."""
        self._tasks = tasks
        self._endless: set[Call] = set()
        self._loop = asyncio.get_running_loop()
        self._connection: Connection

    def use(self, connection: Connection) -> None:
        self._connection = connection

    def accept(self, stream: Stream, headers: Headers | None, *, is_last: bool) -> Listener:
        if self._web is not None and headers is not None and _is_web(headers):
            return WebCall(self, self._connection, stream, self._web.app, scope_of(headers, self._web.stopping))
        call = Call(self, self._connection, stream)
        stream.listener = call
        try:
            call.begin(headers)
        except Ended as ended:
            call.end(ended.code, ended.text)
        else:
            if is_last:
                call.data(b"", is_last=True)
        return call

    def end_endless(self, code: int, text: str) -> None:
        for call in list(self._endless):
            call.end(code, text)

    def keep(self, call: Call) -> None:
        """It is one that goes on."""
        self._endless.add(call)

    def forget(self, call: Call) -> None:
        self._endless.discard(call)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        return task

    def is_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)

    def at(self, in_s: float, do: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(in_s, do)


class Call:
    __slots__ = (
        "_calls", "_connection", "_has_head", "_is_over", "_kept", "_method", "_owed", "_reader", "_requests",
        "_stream", "_task", "_timer", "_woken",
    )  # fmt: skip

    def __init__(self, calls: Calls, connection: Connection, stream: Stream) -> None:
        self._calls, self._connection, self._stream = calls, connection, stream
        self._method: Method
        self._reader: MessageReader
        self._requests: deque[bytes] = deque()
        self._kept = self._owed = 0
        """Bytes of the request that nobody works on yet; those of them for which the caller may not send others yet."""
        self._woken: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_head = self._is_over = False

    # what the connection tells

    def begin(self, headers: Headers | None) -> None:
        """`Ended` for what is refused at once."""
        if headers is None:
            raise Ended(messages.RESOURCE_EXHAUSTED, "more headers than are taken")
        if not self._is_grpc(headers):
            return
        path = headers[b":path"]
        method = self._calls.methods.get(path)
        if method is None:
            raise Ended(messages.UNIMPLEMENTED, f"there is no method {path.decode(errors='replace')} here")
        self._method = method
        self._reader = MessageReader(self._calls.most_bytes, is_gzipped=messages.is_gzipped(headers))
        within_s = messages.timeout_s(headers)
        if within_s is not None:
            self._timer = self._calls.at(within_s, self._expire)
        if method.takes_many:
            self._start(self._answer_many(self._many_requests()))

    def _is_grpc(self, headers: Headers) -> bool:
        if b":path" not in headers or b":method" not in headers:
            self._is_over = True
            self._connection.reset(self._stream, PROTOCOL_ERROR)
        elif headers[b":method"] != b"POST":
            self._finish(_NO_POST)
        elif not _is_grpc(headers.get(b"content-type", b"")):
            self._finish(_NO_GRPC)
        return not self._is_over

    def data(self, data: bytes, *, is_last: bool) -> None:
        if self._is_over:
            return
        try:
            self._take(data)
            if is_last:
                self._hear_the_end()
        except Ended as ended:
            self.end(ended.code, ended.text)

    def reset(self) -> None:
        self._is_over = True
        self._let_go()

    def has_room(self) -> None:
        self._wake()

    # the request

    def _take(self, data: bytes) -> None:
        self._requests.extend(self._reader.feed(data))
        self._keep(len(data))
        if not self._method.takes_many:
            self._give_room()
            if len(self._requests) > 1:
                raise Ended(messages.INTERNAL, "one message is due, and more came")
        elif self._requests:
            self._wake()
        else:
            # Else a message that is larger than the window would never be whole.
            self._give_room()

    def _keep(self, size: int) -> None:
        self._kept += size
        self._owed += size
        self._calls.bytes_waiting += size
        if self._calls.bytes_waiting > self._calls.most_bytes_together:
            raise Ended(messages.RESOURCE_EXHAUSTED, "too many large requests at once")

    def _give_room(self) -> None:
        self._connection.took(self._stream, self._owed)
        self._owed = 0

    def _forget_kept(self) -> None:
        self._calls.bytes_waiting -= self._kept
        self._kept = 0

    def _hear_the_end(self) -> None:
        if self._reader.is_within_one:
            raise Ended(messages.INTERNAL, "the request ends within a message")
        if self._method.takes_many:
            self._wake()
            return
        if not self._requests:
            raise Ended(messages.INTERNAL, "one message is due, and none came")
        self._forget_kept()
        answer = self._answer_many if self._method.gives_many else self._answer_once
        self._start(answer(self._requests.popleft()))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._calls.start(work)
        if self._method.is_endless:
            self._calls.keep(self)

    async def _many_requests(self) -> AsyncIterator[bytes]:
        while True:
            while not self._requests:
                if self._stream.is_heard:
                    return
                await self._wait()
            request = self._requests.popleft()
            if not self._requests:
                self._forget_kept()
                self._give_room()
            yield request

    # the answer

    async def _answer_once(self, request: bytes) -> None:
        try:
            message = await self._method.answer(request)
        except Ended as ended:
            self.end(ended.code, ended.text)
        except asyncio.CancelledError:
            self._break_off()
            raise
        except Exception:
            self._fail()
        else:
            self._finish(HEAD, framed(message), TRAILERS)

    async def _answer_many(self, asked: Any) -> None:
        try:
            async with aclosing(self._method.answer(asked)) as answers:
                async for message in answers:
                    await self._send(message)
        except Ended as ended:
            self.end(ended.code, ended.text)
        except asyncio.CancelledError:
            self._break_off()
            raise
        except Exception:
            self._fail()
        else:
            self.end(messages.OK, "")

    async def _send(self, message: bytes) -> None:
        self._connection.send(self._stream, b"" if self._has_head else HEAD, framed(message))
        self._has_head = True
        while self._connection.is_full(self._stream):
            await self._wait()

    async def _wait(self) -> None:
        """Until there is room, or news. It may be woken for nothing."""
        self._woken = asyncio.get_running_loop().create_future()
        await self._woken

    def _wake(self) -> None:
        woken, self._woken = self._woken, None
        if woken is not None and not woken.done():
            woken.set_result(None)

    def _break_off(self) -> None:
        """Whoever cancelled it: nobody is left waiting."""
        self.end(messages.UNAVAILABLE, "the work on it was broken off")

    def _fail(self) -> None:
        log.exception("a method did not say how it failed")
        self.end(messages.UNKNOWN, "")

    def _expire(self) -> None:
        self.end(messages.DEADLINE_EXCEEDED, "the time that the caller had given is over")

    def end(self, code: int, text: str) -> None:
        """With this status, unless it is over."""
        if self._is_over:
            return
        if self._has_head:
            self._finish(b"", b"", TRAILERS if code == messages.OK else messages.trailers(code, text))
        elif code == messages.OK:
            self._finish(HEAD, b"", TRAILERS)
        else:
            self._finish(messages.only_trailers(code, text))

    def _finish(self, head: bytes, data: bytes = b"", trailers: bytes = b"") -> None:
        """Without trailers, the head is all there is."""
        if self._is_over:
            return
        self._is_over = True
        if trailers:
            self._connection.send(self._stream, head, data, trailers)
        else:
            self._connection.send(self._stream, trailers=head)
        self._let_go()

    def _let_go(self) -> None:
        self._forget_kept()
        if self._timer is not None:
            self._timer.cancel()
        task = self._task
        if task is None:
            return
        if self._method.is_endless:
            self._calls.forget(self)
        is_its_own_end = task is asyncio.current_task()
        if is_its_own_end:
            self._calls.is_done(task)
        else:
            # It may take its time, and is waited for.
            task.add_done_callback(self._calls.is_done)
            task.cancel()


def _is_web(headers: Headers) -> bool:
    return (
        b":path" in headers
        and b":method" in headers
        and not (headers[b":method"] == b"POST" and _is_grpc(headers.get(b"content-type", b"")))
    )


def _is_grpc(content_type: bytes) -> bool:
    """Not gRPC-Web, which begins alike."""
    return content_type[:16] == b"application/grpc" and content_type[16:17] in (b"", b"+", b";")
