"""FastStream's RPC on Redis pub/sub: `broker.request`, and a subscriber that returns the reply."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from faststream.redis import RedisBroker

from benchmarks.peer_roles import URL
from benchmarks.unit_peers.roles import NAME, REPLY_WITHIN_S, Call

CONNECTIONS = 4_096


@asynccontextmanager
async def responding() -> AsyncIterator[None]:
    async with _broker() as broker:

        @broker.subscriber(NAME)
        async def echo(data: bytes) -> bytes:
            return data

        await broker.start()
        yield


@asynccontextmanager
async def calling() -> AsyncIterator[Call]:
    async with _broker() as broker:
        await broker.start()

        async def call(data: bytes) -> bytes:
            reply = await broker.request(data, NAME, timeout=REPLY_WITHIN_S)
            return bytes(reply.body)

        yield call


def _broker() -> RedisBroker:
    # A line in the log for each message is not what is measured. And each call takes two connections: with the
    # default number of them, most of a thousand calls at the same time fail.
    return RedisBroker(URL, log_level=logging.DEBUG, max_connections=CONNECTIONS)
