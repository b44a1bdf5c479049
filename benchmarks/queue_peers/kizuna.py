"""kizuna, as users have it: a queue with its default settings, and the worker helper with 100 tasks at a time, and as
many in hand, as its documentation advises for short ones."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.peer_roles import URL, run
from benchmarks.queue_peers.roles import PAYLOAD, RESULT_WITHIN_S
from kizuna import connect as connect_kizuna
from kizuna.codecs import RAW
from kizuna.coordination.worker import Worker

NAME = "bench"
CONCURRENCY = 100
DATA = PAYLOAD.encode()


class Producer:
    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def push_one(self) -> Any:
        return self._queue.push(DATA)

    async def push_together(self, tasks: int) -> Any:
        return await self._queue.push_many([DATA] * tasks)

    async def run_together(self, tasks: int) -> None:
        await self._queue.results(await self.push_together(tasks), timeout_s=RESULT_WITHIN_S)

    async def run_one(self) -> None:
        task = await self._queue.push(DATA)
        await task.result(timeout_s=RESULT_WITHIN_S)


async def connect() -> Producer:
    k = await connect_kizuna(URL).__aenter__()
    return Producer(k.queue(NAME, codec=RAW))


def work() -> None:
    run(_work())


async def _work() -> None:
    async with connect_kizuna(URL) as k:
        worker = Worker(k, k.queue(NAME, codec=RAW), concurrency=CONCURRENCY, prefetch=CONCURRENCY)

        @worker.handler()
        async def noop(payload: bytes) -> bytes:
            return b""

        await worker.run(asyncio.Event())
