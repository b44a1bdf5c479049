"""kizuna with a thousand units in one process, of which one is called."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.peer_roles import URL
from benchmarks.unit_peers.kizuna import calling, echo
from benchmarks.unit_peers.roles import NAME
from kizuna import connect

__all__ = ["calling", "responding"]

UNITS = 1_000


@asynccontextmanager
async def responding() -> AsyncIterator[None]:
    async with connect(URL) as k, AsyncExitStack() as stack:
        for name in (NAME, *(f"idle{number}" for number in range(1, UNITS))):
            await stack.enter_async_context(k.unit(name).serving(echo))
        yield
