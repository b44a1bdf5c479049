"""grpc.health.v1: whether whoever balances load, or restarts programs, should send callers here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from grpc import StatusCode
from grpc_health.v1 import health_pb2

from kizuna.match.serving.rpcs import Rpc
from kizuna.match.serving.statuses import BadCall

SERVICE = "grpc.health.v1.Health"
LEAVING = "this server is about to end; connect again"

Ready = Callable[[], Awaitable[list[str]]]
"""The problems that keep the process from its work."""

_Answer = health_pb2.HealthCheckResponse


class HealthCalls:
    """Nobody looks unless somebody asks; whoever watches is told within `look_every_s`."""

    def __init__(self, services: Iterable[str], ready: Ready, *, look_every_s: float = 1.0) -> None:
        self._services = {"", *services}
        self._ready = ready
        self._look_every_s = look_every_s
        self._leaving = asyncio.Event()

    def rpcs(self) -> list[Rpc]:
        request = health_pb2.HealthCheckRequest
        return [
            Rpc(SERVICE, "Check", request, _Answer, self.check),
            Rpc(SERVICE, "Watch", request, _Answer, self.watch, streams=True),
        ]

    def leave(self) -> None:
        """From now on nobody should be sent here."""
        self._leaving.set()

    async def check(self, request: Any) -> Any:
        if request.service not in self._services:
            raise BadCall(StatusCode.NOT_FOUND, f"there is no service {request.service!r} here")
        return _Answer(status=await self._status(request.service))

    async def watch(self, request: Any) -> AsyncIterator[Any]:
        told = None
        while True:
            status = await self._status(request.service)
            if status != told:
                yield _Answer(status=status)
                told = status
            if self._leaving.is_set():
                raise BadCall(StatusCode.UNAVAILABLE, LEAVING)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._look_every_s):
                    await self._leaving.wait()

    async def _status(self, service: str) -> Any:
        if service not in self._services:
            return _Answer.SERVICE_UNKNOWN
        if self._leaving.is_set() or await self._ready():
            return _Answer.NOT_SERVING
        return _Answer.SERVING
