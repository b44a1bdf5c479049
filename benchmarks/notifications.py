"""Changes of keys, written by another process, as they reach those who listen for them here.

The writer is kept some batches ahead and no more, so nothing is dropped by anybody, and the readers set the pace.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from statistics import median

from redis.asyncio import Redis

from benchmarks.loops import Loop, run_on
from benchmarks.peers import redis_py
from benchmarks.reporting import Report, shown_ratio
from benchmarks.writer import KEY
from kizuna import connect
from kizuna.store.client import Store
from kizuna.testing.servers import ServerProcess

ROUNDS = 3
ROUND_S = 0.3
READERS = (1, 100)
FIRST_WITHIN_S = 10.0
BATCH = 250
AHEAD = 4
PATTERN = KEY.format("*")

OURS, REDIS_PY = "kizuna, store.events.watch", "redis-py, pubsub.psubscribe"

Next = Callable[[], Awaitable[object]]
"""Waits for the next event and returns it."""


class Tally:
    """Counts what all readers got, and has the writer continue each time everybody got another batch."""

    def __init__(self, readers: int, more: Callable[[], None]) -> None:
        self.delivered = 0
        self.begun = asyncio.Event()
        self._batch = BATCH * readers
        self._more = more

    def count(self) -> None:
        self.delivered += 1
        if self.delivered == 1:
            self.begun.set()
        if self.delivered % self._batch == 0:
            self._more()


def measure(report: Report, server: ServerProcess, loops: tuple[Loop, ...]) -> None:
    for loop in loops:
        report.title(f"Notifications, on {loop}: keyspace events of SETs by another process")
        for readers in READERS:
            _show(report, run_on(loop, _measure(server, readers)), loop, readers)


async def _measure(server: ServerProcess, readers: int) -> dict[str, list[float]]:
    async with connect(server.url) as k, redis_py(server.url, readers) as plain:
        rates: dict[str, list[float]] = {OURS: [], REDIS_PY: []}
        for _ in range(ROUNDS):
            async with _feeds(k.store, readers) as feeds:
                rates[OURS].append(await _run_round(server, feeds))
            async with _pubsubs(plain, readers) as pubsubs:
                rates[REDIS_PY].append(await _run_round(server, pubsubs))
    return rates


@asynccontextmanager
async def _feeds(store: Store, readers: int) -> AsyncIterator[list[Next]]:
    async with AsyncExitStack() as stack:
        feeds = [await stack.enter_async_context(store.events.watch(PATTERN)) for _ in range(readers)]
        yield [feed.__anext__ for feed in feeds]


@asynccontextmanager
async def _pubsubs(client: Redis, readers: int) -> AsyncIterator[list[Next]]:
    async with AsyncExitStack() as stack:
        pubsubs = [await stack.enter_async_context(client.pubsub()) for _ in range(readers)]
        for pubsub in pubsubs:
            await pubsub.psubscribe(f"__keyspace@0__:{PATTERN}")
            await pubsub.get_message(timeout=None)
        yield [pubsub.listen().__anext__ for pubsub in pubsubs]


async def _run_round(server: ServerProcess, readers: list[Next]) -> float:
    """Events delivered in a second."""
    with _writer(server) as more:
        tally = Tally(len(readers), more)
        reading = [asyncio.create_task(_read(next_event, tally)) for next_event in readers]
        for _ in range(AHEAD):
            more()
        # Python starts in the writer meanwhile; the clock starts with the first event.
        await asyncio.wait_for(tally.begun.wait(), FIRST_WITHIN_S)
        began, delivered = time.perf_counter(), tally.delivered
        await asyncio.wait(reading, timeout=ROUND_S)
        rate = (tally.delivered - delivered) / (time.perf_counter() - began)
        await _end(reading)
        return rate


async def _read(next_event: Next, tally: Tally) -> None:
    while True:
        await next_event()
        tally.count()


async def _end(reading: list[asyncio.Task[None]]) -> None:
    for task in reading:
        task.cancel()
    for outcome in await asyncio.gather(*reading, return_exceptions=True):
        # A reader that ended before it was told to has failed, and so has the measurement.
        if isinstance(outcome, Exception):
            raise outcome


@contextmanager
def _writer(server: ServerProcess) -> Iterator[Callable[[], None]]:
    """Another process, and how to have it write one more batch."""
    command = [sys.executable, "-m", "benchmarks.writer", server.host, str(server.port), str(BATCH)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        pipe = process.stdin.fileno()

        def more() -> None:
            os.write(pipe, b".")

        yield more


def _show(report: Report, rates: dict[str, list[float]], loop: Loop, readers: int) -> None:
    ours = median(rates[OURS])
    for client, measured in rates.items():
        report.figure("notifications", loop=loop, readers=readers, client=client, per_second=median(measured))
    report.table(
        [f"{readers:,} of them on one pattern" if readers > 1 else "1 reader", "events a second", "ours is"],
        [[client, median(measured), shown_ratio(ours / median(measured))] for client, measured in rates.items()],
    )
