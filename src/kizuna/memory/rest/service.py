"""RestApi: listens, and stops when nothing is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from typing import TYPE_CHECKING

import uvicorn

from kizuna.errors import CannotListen, SettingsError
from kizuna.memory.rest.app import app_of, token_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kizuna.memory.rest.connected import Connected
    from kizuna.settings import MemorySettings


class RestApi:
    """A service. SettingsError if it were to listen to others than this machine without a token, CannotListen if the
    address is taken or not ours."""

    def __init__(self, k: Connected) -> None:
        self.url = ""
        """Where it listens, once it has started."""
        self._k = k

    async def run(self, started: asyncio.Event) -> None:
        stopping = asyncio.Event()
        app = app_of(self._k, stopping)
        listener = await _listen(self._k.settings.memory)
        self.url = _url_of(listener)
        server = _Server(_config(app), started)
        serving = asyncio.create_task(server.serve(sockets=[listener]), name="kizuna memory REST")
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            stopping.set()
            server.should_exit = True
            await _end(server, serving)
            raise
        finally:
            listener.close()


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


def _config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
    )


async def _listen(settings: MemorySettings) -> socket.socket:
    host, port = settings.rest_host, settings.rest_port
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        _refuse_to_let_everybody_in(host, str(address[0]), token_of(settings))
        # Named, or asyncio does not know it for TCP, and leaves each answer to wait for the peer's next word.
        return _bound(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP), address)
    except (OSError, UnicodeError) as error:
        unknown = not isinstance(error, OSError) or isinstance(error, socket.gaierror) or not error.errno
        reason = "there is no such host" if unknown else os.strerror(getattr(error, "errno", 0))
        raise CannotListen(f"{host}:{port}", reason, "memory.rest_host and memory.rest_port") from error


def _refuse_to_let_everybody_in(host: str, address: str, token: str) -> None:
    if not token and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        raise SettingsError(
            f"memory.rest_host = {host!r} lets others in than this machine, and there is no token; "
            "set memory.rest_token_file, or listen on 127.0.0.1"
        )


def _bound(listener: socket.socket, address: object) -> socket.socket:
    try:
        # Else the port of an API that has just ended would be taken for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)  # type: ignore[arg-type]
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
