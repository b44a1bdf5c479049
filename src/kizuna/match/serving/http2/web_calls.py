"""A request over HTTP/2 that is no gRPC: handed to an ASGI application. Clients of minimatch know of one port only, and
whether they speak gRPC, gRPC-Web or Connect to it, or REST, is in their headers.

    headers ──> the application works ──receive──> body, as it comes
                                      ──send─────> status and headers ──> body ──> end
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kizuna.match.serving.http2.faults import CANCEL, INTERNAL_ERROR
from kizuna.match.serving.http2.hpack import Headers, written
from kizuna.match.serving.http2.sending import JUST_END

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from kizuna.asgi import Application
    from kizuna.match.serving.http2.calls import Calls
    from kizuna.match.serving.http2.connection import Connection
    from kizuna.match.serving.http2.streams import Stream

log = logging.getLogger("kizuna.match.serving")

STOPPING = "kizuna.stopping"
"""In the scope: an event that is set when the server stops, so that what would go on for ever is ended."""

_FAILED = written([(b":status", b"500")])
# These are of HTTP/1.1, and have no meaning here.
_OF_ONE_CONNECTION = {b"connection", b"keep-alive", b"transfer-encoding"}


class WebCall:
    def __init__(self, calls: Calls, connection: Connection, stream: Stream, app: Application, scope: Any) -> None:
        self._calls, self._connection, self._stream = calls, connection, stream
        self._chunks: list[bytes] = []
        self._kept = 0
        """Bytes of the request so far."""
        self._was_told_the_end = self._has_head = self._is_over = False
        self._waiting: list[asyncio.Future[None]] = []
        calls.start(self._serve(app, scope))

    # what the connection tells

    def data(self, data: bytes, *, is_last: bool) -> None:
        if self._is_over:
            return
        self._chunks.append(data)
        self._kept += len(data)
        self._calls.bytes_waiting += len(data)
        if self._calls.bytes_waiting > self._calls.most_bytes_together:
            self._connection.reset(self._stream, CANCEL)
            self._is_over = True
        self._wake()

    def reset(self) -> None:
        self._is_over = True
        self._wake()

    def has_room(self) -> None:
        self._wake()

    # what the application does

    async def _serve(self, app: Application, scope: Any) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            log.exception("a request over HTTP/2 failed")
        finally:
            self._end()
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - it is a coroutine that runs
            self._calls.is_done(task)

    async def _receive(self) -> MutableMapping[str, Any]:
        while not self._is_over and not self._chunks and (self._was_told_the_end or not self._stream.is_heard):
            await self._news()
        if self._is_over:
            return {"type": "http.disconnect"}
        body = b"".join(self._chunks)
        self._chunks.clear()
        self._connection.took(self._stream, len(body))
        self._was_told_the_end = self._stream.is_heard
        return {"type": "http.request", "body": body, "more_body": not self._stream.is_heard}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        # Before it writes, and not after: who is cut off while it waits has sent nothing.
        while self._connection.is_full(self._stream):
            await self._news()
        if message["type"] == "http.response.start":
            self._begin(message["status"], message["headers"])
        else:
            self._connection.send(self._stream, data=message.get("body", b""))
            if not message.get("more_body", False):
                self._finish()

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        kept = [(name, value) for name, value in headers if name not in _OF_ONE_CONNECTION]
        self._connection.send(self._stream, written([(b":status", b"%d" % status), *kept]))
        self._has_head = True

    def _finish(self) -> None:
        self._is_over = True
        self._connection.send(self._stream, trailers=JUST_END)
        self._wake()

    def _end(self) -> None:
        """Whatever has become of it: nobody is left waiting, and what was kept is kept no more."""
        self._calls.bytes_waiting -= self._kept
        if self._is_over:
            return
        self._is_over = True
        if self._has_head:
            self._connection.reset(self._stream, INTERNAL_ERROR)
        else:
            self._connection.send(self._stream, trailers=_FAILED)

    # waiting

    async def _news(self) -> None:
        """Of data, of room, or that nobody is there any more. It may be nothing of the kind."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def scope_of(headers: Headers, stopping: asyncio.Event) -> dict[str, Any]:
    """As ASGI has it."""
    raw_path, _, query = headers[b":path"].partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "2",
        "method": headers[b":method"].decode("latin-1"),
        "scheme": headers.get(b":scheme", b"http").decode("latin-1"),
        "path": unquote(raw_path.decode("latin-1")),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": [header for header in headers.items() if _is_passed_on(*header)],
        STOPPING: stopping,
    }


def _is_passed_on(name: bytes, value: bytes) -> bool:
    # How long the body is, its end says; a length that is no number is worth nothing.
    return not name.startswith(b":") and (name != b"content-length" or value.isdigit())
