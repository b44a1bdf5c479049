"""kizuna, as users have it: everything is on that is on by default."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.peer_roles import URL
from benchmarks.unit_peers.roles import NAME, Call
from kizuna import connect


@asynccontextmanager
async def responding() -> AsyncIterator[None]:
    async with connect(URL) as k, k.unit(NAME).serving(echo):
        yield


@asynccontextmanager
async def calling() -> AsyncIterator[Call]:
    async with connect(URL) as k:
        caller = k.unit("caller")
        yield lambda data: caller.request(NAME, data)


async def echo(data: bytes) -> bytes:
    return data
