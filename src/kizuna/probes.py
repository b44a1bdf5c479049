"""/healthz, /readyz, /metrics and /version of a long-running process, for whoever looks after it.

    /healthz   200 while the process turns its event loop
    /readyz    200 when it can do its work, else 503 with the reasons
    /metrics   what it counts, for Prometheus
    /version   what it is

The server speaks just enough HTTP/1.1 for that (http.py reads and writes it), and is safe to leave open: every
request has a deadline, a size and a place among a bounded number of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import platform
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from kizuna._version import __version__
from kizuna.http import BadRequest, Request, Response, encode, parse_request
from kizuna.listening import address_of, saying_why

if TYPE_CHECKING:
    from kizuna.settings import ProbesSettings

log = logging.getLogger("kizuna.probes")

Ready = Callable[[], Awaitable[list[str]]]
Page = Callable[[str], Awaitable[tuple[bytes, str]]]

LONGEST_HEADER_BYTES = 8 * 1024
MOST_CONNECTIONS = 64
_DEADLINE_S = 5.0
# What a client may still send after it was answered, before its connection is cut.
_LINGER_BYTES = 64 * 1024


class Probes:
    """A service. `ready` returns the problems that keep the process from its work; `metrics` takes an Accept
    header and returns a page and its content type."""

    def __init__(
        self, settings: ProbesSettings, ready: Ready, metrics: Page, *, deadline_s: float = _DEADLINE_S
    ) -> None:
        self.url = ""
        """Where it listens, once it has started."""
        self._settings, self._ready, self._metrics = settings, ready, metrics
        self._deadline_s = deadline_s
        self._connections: set[asyncio.Task[None]] = set()
        # Those whose request has not come yet, or is answered; who has kept us waiting longest comes first.
        self._idle: dict[asyncio.Task[None], None] = {}
        self._pages: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics_page,
            "/version": self._version,
        }

    async def run(self, started: asyncio.Event) -> None:
        server = await self._listen()
        host, port = server.sockets[0].getsockname()[:2]
        self.url = f"http://{address_of(host, port)}"
        try:
            await server.start_serving()
            started.set()
            # Not serve_forever: when cancelled, it would wait for clients that we have not cut off yet.
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()
            for task in self._connections:
                task.cancel()
            if self._connections:
                await asyncio.wait(self._connections)
            await server.wait_closed()

    async def _listen(self) -> asyncio.Server:
        host, port = self._settings.host, self._settings.port
        with saying_why(host, port, "probes.host and probes.port"):
            # Serving comes later: cancelled while it begins to serve, this call would leave an open socket behind.
            return await asyncio.start_server(self._accept, host, port, limit=LONGEST_HEADER_BYTES, start_serving=False)

    # -- connections ------------------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MOST_CONNECTIONS and not self._cut_off_the_idlest():
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name="kizuna probe")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    def _cut_off_the_idlest(self) -> bool:
        """Whoever holds connections without asking anything must not keep the others out."""
        task = next(iter(self._idle), None)
        if task is None:
            return False
        del self._idle[task]
        task.cancel()
        return True

    @contextlib.contextmanager
    def _counted_as_idle(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - _accept made it
        self._idle[task] = None
        try:
            yield
        finally:
            self._idle.pop(task, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_one(reader, writer):
                pass
        except OSError as error:
            log.debug("probe cut off", extra={"error": str(error)})
        finally:
            # Not a polite close, which would wait for a peer that may not read: what it was sent, it has by now.
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether another one may follow on this connection."""
        head = keep_alive = False
        try:
            header = await self._read_header(reader)
            if not header:
                return False
            request = parse_request(header)
            head, keep_alive = request.method == "HEAD", request.keep_alive
            response = await self._answer(request)
        except BadRequest as error:
            response = _json(error.status, {"error": error.reason})
        async with asyncio.timeout(self._deadline_s):
            writer.write(encode(response, head=head, keep_alive=keep_alive))
            await writer.drain()
            if not keep_alive:
                await self._end(reader, writer)
        return keep_alive

    async def _read_header(self, reader: asyncio.StreamReader) -> bytes:
        """Up to and with the empty line; nothing at all if the client is gone, or asks no more."""
        first = b""
        try:
            with self._counted_as_idle():
                async with asyncio.timeout(self._deadline_s):
                    first = await reader.read(1)
                    return first and first + await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        except asyncio.LimitOverrunError:
            raise BadRequest(431, f"the header is longer than {LONGEST_HEADER_BYTES} bytes") from None
        except TimeoutError:
            # To somebody who asked nothing, an answer would come as a surprise.
            if not first:
                return b""
            raise BadRequest(408, f"no whole request came within {self._deadline_s:g}s") from None

    async def _end(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say that we are done, and read what is still on its way: cutting a connection with unread bytes makes
        the peer's kernel throw away our answer."""
        writer.write_eof()
        with self._counted_as_idle():
            for _ in range(0, _LINGER_BYTES, 4096):
                if not await reader.read(4096):
                    return

    # -- answers ----------------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> Response:
        page = self._pages.get(request.path)
        if page is None:
            return _json(404, {"error": f"there is no {request.path}", "paths": list(self._pages)})
        if request.method not in ("GET", "HEAD"):
            return _json(405, {"error": f"{request.method} is not allowed"}, ("Allow", "GET, HEAD"))
        try:
            async with asyncio.timeout(self._deadline_s):
                return await page(request)
        except TimeoutError:
            return _json(503, {"error": f"no answer within {self._deadline_s:g}s"})
        except Exception as error:
            log.exception("probe failed", extra={"path": request.path})
            return _json(500, {"error": f"{type(error).__name__}; the log of this process has the rest"})

    async def _healthz(self, _: Request) -> Response:
        return _json(200, {"status": "alive"})

    async def _readyz(self, _: Request) -> Response:
        problems = await self._ready()
        if problems:
            return _json(503, {"status": "not ready", "problems": problems})
        return _json(200, {"status": "ready", "problems": []})

    async def _metrics_page(self, request: Request) -> Response:
        body, content_type = await self._metrics(request.headers.get("accept", ""))
        return Response(200, content_type, body)

    async def _version(self, _: Request) -> Response:
        return _json(200, {"kizuna": __version__, "python": platform.python_version()})


def _json(status: int, content: object, *headers: tuple[str, str]) -> Response:
    body = json.dumps(content, ensure_ascii=False).encode() + b"\n"
    return Response(status, "application/json", body, headers)
