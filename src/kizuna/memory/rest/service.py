"""RestApi: listens, and stops when nothing is left of it."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING

from kizuna.asgi import AsgiServer
from kizuna.errors import SettingsError
from kizuna.listening import listen, url_of
from kizuna.memory.rest.app import app_of, token_of

if TYPE_CHECKING:
    import socket

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
        self.url = url_of(listener)
        await AsgiServer(app, stopping).run(listener, started)


async def _listen(settings: MemorySettings) -> socket.socket:
    token = token_of(settings)
    listener = await listen(settings.rest_host, settings.rest_port, "memory.rest_host and memory.rest_port")
    address = str(listener.getsockname()[0])
    if not token and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        listener.close()
        raise SettingsError(
            f"memory.rest_host = {settings.rest_host!r} lets others in than this machine, and there is no token; "
            "set memory.rest_token_file, or listen on 127.0.0.1"
        )
    return listener
