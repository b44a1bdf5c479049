"""RPC on plain Redis pub/sub with redis-py, as one writes it by hand: a channel for requests, a channel for the replies
to each requester, numbers that say which reply belongs to which request.

    request   "<reply channel> <number> <data>"        reply   "<number> <data>"
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis

from benchmarks.peer_roles import URL
from benchmarks.unit_peers.roles import NAME, REPLY_WITHIN_S, Call

REQUESTS = f"rpc:{NAME}"
CONNECTIONS = 50
"""For publishing. The pool's default is 100, and who comes when all are taken gets an error instead of a place in line;
with one for each caller, a thousand of them, it is slower."""


class Requester:
    def __init__(self, client: Redis, replies: str) -> None:
        self._client = client
        self._replies = replies.encode()
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def call(self, data: bytes) -> bytes:
        number = next(self._numbers)
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            async with asyncio.timeout(REPLY_WITHIN_S):
                await self._client.publish(REQUESTS, b"%b %d %b" % (self._replies, number, data))
                return await reply
        finally:
            del self._waiting[number]

    async def take_replies(self, pubsub: Any) -> None:
        async for message in pubsub.listen():
            number, _, data = message["data"].partition(b" ")
            waiting = self._waiting.get(int(number))
            if waiting and not waiting.done():
                waiting.set_result(data)


class Responder:
    def __init__(self, client: Redis) -> None:
        self._client = client
        self._answering: set[asyncio.Task[None]] = set()

    async def take_requests(self, pubsub: Any) -> None:
        async for message in pubsub.listen():
            # A request that takes its time keeps no other waiting.
            task = asyncio.create_task(self._answer(message["data"]))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, request: bytes) -> None:
        replies, number, data = request.split(b" ", 2)
        await self._client.publish(replies, b"%b %b" % (number, await echo(data)))


@asynccontextmanager
async def responding() -> AsyncIterator[None]:
    async with _client() as client, _subscribed(client, REQUESTS) as pubsub, asyncio.TaskGroup() as tasks:
        tasks.create_task(Responder(client).take_requests(pubsub))
        yield


@asynccontextmanager
async def calling() -> AsyncIterator[Call]:
    replies = f"rpc:replies:{uuid.uuid4().hex}"
    async with _client() as client, _subscribed(client, replies) as pubsub, asyncio.TaskGroup() as tasks:
        requester = Requester(client, replies)
        tasks.create_task(requester.take_replies(pubsub))
        yield requester.call


async def echo(data: bytes) -> bytes:
    return data


def _client() -> Redis:
    return Redis.from_pool(BlockingConnectionPool.from_url(URL, max_connections=CONNECTIONS))


@asynccontextmanager
async def _subscribed(client: Redis, channel: str) -> AsyncIterator[Any]:
    async with client.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(channel)
        # The server's word that it hears us: what is published from now on arrives.
        await pubsub.get_message(timeout=REPLY_WITHIN_S)
        yield pubsub
