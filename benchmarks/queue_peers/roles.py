"""What the processes of all peers have in common: producers take orders, and all end when nobody is left to give any.

Orders and answers are lines of JSON. Whatever a library prints goes to standard error.

    {"order": "run_together", "tasks": 500}   ->   {"seconds": 0.41, "latencies_ms": []}
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

URL = os.environ.get("QUEUE_URL", "redis://localhost:6379/0")
FOLDER = Path(os.environ.get("QUEUE_FOLDER", "."))
LOOP = os.environ.get("QUEUE_LOOP", "asyncio")
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
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    run(_obey(connect, answers))


def run(main: Any) -> None:
    if LOOP == "uvloop":
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
    else:
        asyncio.run(main)


def end_with_standard_input() -> None:
    """The benchmark holds the other end; however it ends, nothing of this process group is left."""

    def wait() -> None:
        os.read(stdin, 1)
        os.killpg(0, signal.SIGKILL)

    # Some workers read or close what is called sys.stdin.
    stdin = os.dup(0)
    threading.Thread(target=wait, daemon=True).start()


async def with_callers(tasks: int, operation: Callable[[], Awaitable[Any]]) -> list[Any]:
    """What the operation returned, `tasks` times, by `CALLERS` at the same time."""
    return await map_with_callers(range(tasks), lambda _: operation())


async def map_with_callers(items: Any, operation: Callable[[Any], Awaitable[Any]]) -> list[Any]:
    waiting = iter(items)

    async def call() -> list[Any]:
        return [await operation(item) for item in waiting]

    return [outcome for outcomes in await asyncio.gather(*(call() for _ in range(CALLERS))) for outcome in outcomes]


async def _obey(connect: Callable[[], Awaitable[Producer]], answers: Any) -> None:
    producer = await connect()
    # Keep the garbage collector off what importing has left.
    gc.collect()
    gc.freeze()
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        answers.write(json.dumps(await _ORDERS[asked["order"]](producer, asked["tasks"])) + "\n")
    # Not all of the libraries can be told to end; their process can.
    answers.close()
    os._exit(0)


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
