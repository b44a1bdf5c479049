"""An ASGI application on a port, served until told to stop. Needs uvicorn, of the extras `rest` and `match`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Iterator

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


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
