"""An ASGI application on a port, served until told to stop. Needs uvicorn, of the extras `rest` and `match`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import uvicorn

from kizuna.errors import CannotListen

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


async def listen(host: str, port: int, settings: str, *, reuse_port: bool = False) -> socket.socket:
    """A socket that is bound; port 0 is a free one. CannotListen if the address is taken, or not ours: says which
    `settings` name it."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        # Named, or asyncio does not know it for TCP, and leaves each answer to wait for the peer's next word.
        return _bound(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP), address, reuse_port)
    except (OSError, UnicodeError) as error:
        unknown = not isinstance(error, OSError) or isinstance(error, socket.gaierror) or not error.errno
        reason = "there is no such host" if unknown else os.strerror(getattr(error, "errno", 0))
        raise CannotListen(f"{host}:{port}", reason, settings) from error


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class AsgiServer:
    """Serves an application on a socket, or on connections that somebody else has accepted, or both."""

    def __init__(self, app: Any, stopping: asyncio.Event, tls: ssl.SSLContext | None = None) -> None:
        """`stopping` is set when it stops: by it the application ends what would go on for ever."""
        self._app, self._stopping, self._tls = app, stopping, tls
        self._server: _Server | None = None

    async def run(self, listener: socket.socket | None, started: asyncio.Event) -> None:
        """As a service does: until cancelled. Then lets requests be answered; cancelled again, cuts them off. The
        listener is closed at the end."""
        server = self._server = _Server(_config(self._app, self._tls), started)
        listeners = [listener] if listener else []
        serving = asyncio.create_task(server.serve(sockets=listeners), name="kizuna asgi")
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self._stopping.set()
            server.should_exit = True
            await _end(server, serving)
            raise
        finally:
            self._server = None
            for listener in listeners:
                listener.close()

    def protocol(self) -> asyncio.Protocol | None:
        """For a connection that somebody else has accepted: to be told that it was made, and what came on it so far.
        None while it is not served here."""
        return self._server.protocol() if self._server and not self._stopping.is_set() else None


class _Server(uvicorn.Server):
    """Signals are handled by whoever runs services."""

    def __init__(self, config: uvicorn.Config, told: asyncio.Event) -> None:
        super().__init__(config)
        self._told = told

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if not self.should_exit:
            self._told.set()

    def protocol(self) -> asyncio.Protocol:
        """One more connection, which is ended with all others."""
        kind: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = kind(config=self.config, server_state=self.server_state, app_state={})
        return protocol

    def cut_off(self) -> None:
        """Do not wait for requests that still run."""
        self.force_exit = True
        for task in self.server_state.tasks:
            task.cancel()
        for connection in self.server_state.connections:
            if connection.transport is not None:
                connection.transport.abort()


async def _end(server: _Server, serving: asyncio.Task[None]) -> None:
    """Lets requests be answered; cancelled again, cuts them off."""
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.cut_off()
        await serving


def _config(app: Any, tls: ssl.SSLContext | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
    )
    config.load()
    config.ssl = tls
    return config


def _bound(listener: socket.socket, address: Any, reuse_port: bool) -> socket.socket:
    try:
        # Else the port of a server that has just ended would be taken for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
