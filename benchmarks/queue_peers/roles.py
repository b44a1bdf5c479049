"""What the producers of all queues have in common: the orders that they take, each for a number of tasks."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from benchmarks import peer_roles

PAYLOAD = "p" * 100
CALLERS = 100
"""How many tasks of the producer push or wait at the same time, where a library has no interface for many at once."""
RESULT_WITHIN_S = 60
PAUSE_S = 0.005
"""Between two tasks when latency is measured, so that the worker is idle again."""


class Producer(Protocol):
    """What is measured. Each may be a coroutine function or a plain one, as the library is."""

    def push_one(self) -> Any:
        """Returns once the server has it."""

    def push_together(self, tasks: int) -> Any:
        """By the interface for many if there is one, else by `CALLERS` at the same time, else one after the other."""

    def run_together(self, tasks: int) -> Any:
        """Push them, as fast as the library can, and return when the result of each is there."""

    def run_one(self) -> Any:
        """Push one and wait for its result."""


def obey(connect: Callable[[], Awaitable[Producer]]) -> None:
    """Be the producer: connect, then do and answer one order after the other."""
    peer_roles.obey(_connected(connect), _ORDERS)


@asynccontextmanager
async def _connected(connect: Callable[[], Awaitable[Producer]]) -> AsyncIterator[Producer]:
    yield await connect()


async def with_callers(tasks: int, operation: Callable[[], Awaitable[Any]]) -> list[Any]:
    """What the operation returned, `tasks` times, by `CALLERS` at the same time."""
    return await map_with_callers(range(tasks), lambda _: operation())


async def map_with_callers(items: Any, operation: Callable[[Any], Awaitable[Any]]) -> list[Any]:
    waiting = iter(items)

    async def call() -> list[Any]:
        return [await operation(item) for item in waiting]

    return [outcome for outcomes in await asyncio.gather(*(call() for _ in range(CALLERS))) for outcome in outcomes]


async def _push_each(producer: Producer, tasks: int) -> dict[str, Any]:
    began = time.perf_counter()
    for _ in range(tasks):
        await _done(producer.push_one())
    return {"seconds": time.perf_counter() - began}


async def _push_together(producer: Producer, tasks: int) -> dict[str, Any]:
    began = time.perf_counter()
    await _done(producer.push_together(tasks))
    return {"seconds": time.perf_counter() - began}


async def _run_together(producer: Producer, tasks: int) -> dict[str, Any]:
    began = time.perf_counter()
    await _done(producer.run_together(tasks))
    return {"seconds": time.perf_counter() - began}


async def _run_each(producer: Producer, tasks: int) -> dict[str, Any]:
    latencies_ms: list[float] = []
    for _ in range(tasks):
        await asyncio.sleep(PAUSE_S)
        began = time.perf_counter()
        await _done(producer.run_one())
        latencies_ms.append((time.perf_counter() - began) * 1000)
    return {"seconds": sum(latencies_ms) / 1000, "latencies_ms": latencies_ms}


async def _done(outcome: Any) -> None:
    if inspect.isawaitable(outcome):
        await outcome


_ORDERS = {
    "push_each": _push_each,
    "push_together": _push_together,
    "run_together": _run_together,
    "run_each": _run_each,
}
