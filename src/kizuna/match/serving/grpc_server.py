"""GrpcServer: listens, answers what it is given to answer, and stops when nothing is left of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from kizuna.listening import address_of, listen
from kizuna.match.serving import reflection
from kizuna.match.serving.answering import method_of, reflecting
from kizuna.match.serving.call_counts import CallCount, call_measures
from kizuna.match.serving.credentials import tls_of
from kizuna.match.serving.health_calls import LEAVING, HealthCalls
from kizuna.match.serving.http2.server import Http2Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kizuna.asgi import Application
    from kizuna.match.serving.health_calls import Ready
    from kizuna.match.serving.http2.calls import Method
    from kizuna.match.serving.http2.server import Http1
    from kizuna.match.serving.rpcs import Rpc
    from kizuna.metrics import Measure
    from kizuna.settings import MatchSettings

# What gRPC takes unless told otherwise, and so what callers of Open Match are used to.
_TAKEN_AT_LEAST = 4 * 1024 * 1024
# What may stand around the largest ticket: then it is refused by who knows what it is, in words.
_AROUND_BYTES = 64 * 1024


class GrpcServer:
    """A service, with health checks and reflection besides the calls that it is given.

    `port_setting` is what CannotListen tells people to change. With `reuse_port` several processes may listen on one
    port, and the system deals out connections. `ready` returns the problems that keep the process from its work.
    `http1` serves those who speak HTTP/1.1 to the same port, and `web` those who speak HTTP/2 and not gRPC.

    Told to stop, it says so to who watches its health, ends what would go on for ever with UNAVAILABLE, and gives the
    rest `grace_s`.
    """

    def __init__(
        self,
        rpcs: Sequence[Rpc],
        settings: MatchSettings,
        *,
        port: int,
        ready: Ready,
        port_setting: str = "match.frontend_port",
        reuse_port: bool = False,
        grace_s: float = 5.0,
        http1: Http1 | None = None,
        web: Application | None = None,
    ) -> None:
        self.port = port
        """Where it listens, once it has started."""
        self.counts = [CallCount(rpc) for rpc in rpcs]
        self._rpcs, self._settings = rpcs, settings
        self._wanted_port, self._port_setting, self._reuse_port = port, port_setting, reuse_port
        self._ready, self._grace_s, self._http1, self._web = ready, grace_s, http1, web

    @property
    def address(self) -> str:
        return address_of(self._settings.host, self.port)

    def measures(self) -> Iterator[Measure]:
        """For /metrics."""
        yield from call_measures(self.counts)

    async def run(self, started: asyncio.Event) -> None:
        tls = tls_of(self._settings)
        health = HealthCalls({rpc.service for rpc in self._rpcs}, self._ready)
        most_bytes = max(_TAKEN_AT_LEAST, self._settings.largest_bytes + _AROUND_BYTES)
        methods = self._methods(health)
        server = Http2Server(methods, most_bytes=most_bytes, leaving=LEAVING, http1=self._http1, web=self._web)
        settings = f"match.host and {self._port_setting}"
        listener = await listen(self._settings.host, self._wanted_port, settings, reuse_port=self._reuse_port)
        self.port = listener.getsockname()[1]
        with closing(listener):
            try:
                server.start(listener, tls)
                started.set()
                await asyncio.get_running_loop().create_future()
            finally:
                health.leave()
                await server.stop(self._grace_s)

    def _methods(self, health: HealthCalls) -> dict[bytes, Method]:
        found = {rpc.path: method_of(rpc, count) for rpc, count in zip(self._rpcs, self.counts, strict=True)}
        found |= {rpc.path: method_of(rpc, CallCount(rpc)) for rpc in health.rpcs()}
        reflects = reflecting(reflection.reflector([*self._rpcs, *health.rpcs()]))
        for service in (reflection.SERVICE, reflection.SERVICE_TODAY):
            found[f"/{service}/{reflection.METHOD}"] = reflects
        return {path.encode(): method for path, method in found.items()}
