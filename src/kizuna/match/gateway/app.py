"""The ASGI application: finds the call, serves it, counts it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from grpc import StatusCode

from kizuna.match.gateway.calls import serve_call
from kizuna.match.gateway.exchange import Answer, Exchange
from kizuna.match.gateway.routes import NotServed, Routes
from kizuna.match.serving.call_counts import CallCount, call_measures
from kizuna.match.serving.http2.web_calls import STOPPING

if TYPE_CHECKING:
    from kizuna.asgi import Receive, Scope, Send
    from kizuna.match.serving.health_calls import Ready
    from kizuna.match.serving.rpcs import Rpc
    from kizuna.metrics import Measure

_HEALTH = "/healthz"


class GatewayApp:
    """`stopping` ends the streams that would otherwise go on for as long as their readers."""

    def __init__(self, rpcs: Iterable[Rpc], largest: int, stopping: asyncio.Event, ready: Ready | None = None) -> None:
        rpcs = list(rpcs)
        self.counts = {rpc.path: CallCount(rpc) for rpc in rpcs}
        self._routes = Routes(rpcs)
        self._largest = largest
        self._stopping = stopping
        self._ready = ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        if exchange.path == _HEALTH:
            await exchange.answer(await self._health())
            return
        try:
            rpc, dialect = self._routes.find(exchange)
        except NotServed as not_served:
            await exchange.answer(not_served.answer)
            return
        count, code = self.counts[rpc.path], StatusCode.CANCELLED
        began = count.begin()
        try:
            code = await serve_call(exchange, rpc, dialect, self._largest, scope.get(STOPPING, self._stopping))
        finally:
            count.end(code, began)

    async def _health(self) -> Answer:
        """Who asks may be anybody: what the problems are is on the page of the probes, and in the log."""
        is_well = not self._stopping.is_set() and (self._ready is None or not await self._ready())
        return Answer(200, "text/plain", b"ok") if is_well else Answer(503, "text/plain", b"not ready")

    def measures(self) -> Iterator[Measure]:
        """Under names of their own: gRPC counts in the same process."""
        for measure in call_measures(list(self.counts.values())):
            yield replace(measure, name=measure.name.replace("kizuna_match_rpc", "kizuna_match_http_rpc"))
