"""Gateway: listens, and stops when nothing is left of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kizuna.asgi import AsgiServer
from kizuna.listening import listen, url_of
from kizuna.match.gateway.app import GatewayApp
from kizuna.match.serving.credentials import tls_of

if TYPE_CHECKING:
    import socket

    from kizuna.match.serving.health_calls import Ready
    from kizuna.match.serving.rpcs import Rpc
    from kizuna.metrics import Measure
    from kizuna.settings import MatchSettings

# As gRPC takes, whatever is called: lists of tickets are longer than a ticket.
_TAKEN_AT_LEAST = 4 * 1024 * 1024
# What JSON adds to a message.
_TIMES_LARGEST = 2


class Gateway:
    """A service: these calls over HTTP/1.1. CannotListen if the address is taken or not ours, SettingsError if the
    files of match.tls_* cannot be used."""

    def __init__(
        self,
        rpcs: Iterable[Rpc],
        settings: MatchSettings,
        *,
        port: int | None,
        port_setting: str = "match.frontend_http_port",
        ready: Ready | None = None,
        reuse_port: bool = False,
    ) -> None:
        """Without a port it serves what others hand over by `protocol`. `port_setting` is what CannotListen tells
        people to change; `ready` returns the problems that keep the process from its work, for /healthz. With
        `reuse_port` several processes may listen on one port."""
        self.url = ""
        """Where it listens, once it has started; empty: nowhere."""
        self.port = port or 0
        self._wanted_port = port
        self._settings = settings
        self._port_setting = port_setting
        self._reuse_port = reuse_port
        self._stopping = asyncio.Event()
        self._server: AsgiServer | None = None
        self.app = GatewayApp(rpcs, largest_body(settings), self._stopping, ready)

    async def run(self, started: asyncio.Event) -> None:
        self._stopping.clear()
        tls = tls_of(self._settings)
        self._server = AsgiServer(self.app, self._stopping, tls)
        await self._server.run(await self._listen("https" if tls else "http"), started)

    def protocol(self) -> asyncio.Protocol | None:
        """For a connection that came to the port of gRPC, and whose first bytes are HTTP/1.1: as the clients of
        minimatch have it, who know of one port only. It is to be told that it was made (behind TLS, if any), and then
        those bytes. None while we are not running."""
        return self._server.protocol() if self._server else None

    async def _listen(self, scheme: str) -> socket.socket | None:
        if self._wanted_port is None:
            return None
        names = f"match.host and {self._port_setting}"
        listener = await listen(self._settings.host, self._wanted_port, names, reuse_port=self._reuse_port)
        self.url, self.port = url_of(listener, scheme), listener.getsockname()[1]
        return listener

    def measures(self) -> Iterator[Measure]:
        """For /metrics."""
        return self.app.measures()


def largest_body(settings: MatchSettings) -> int:
    """A ticket that is too large is refused by who knows what it is, in words; this is for what is larger still."""
    return max(_TAKEN_AT_LEAST, _TIMES_LARGEST * settings.largest_bytes)
