"""How things are measured: short rounds that take turns, and the median of each contender.

The machine is shared and its speed changes from second to second. So no contender has a long run of its own:

    round 1: a b c d    round 2: a b c d    round 3: a b c d    …    median of a, of b, of c, of d

A round is a number of callers, each of which awaits one operation after the other until the time is up.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, TypeVar

Name = TypeVar("Name", bound=Hashable)
Operation = Callable[[str], Awaitable[Any]]
"""Does one thing, with the key of the caller."""


@dataclass(frozen=True)
class Contender:
    operation: Operation
    commands: int = 1
    """How many commands, or rows, one operation is."""
    callers: int = 1


@dataclass(frozen=True)
class Round:
    commands: int
    seconds: float
    cpu_seconds: float
    latencies_us: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Figure:
    """The medians of some rounds."""

    per_second: float
    cpu_us: float
    """CPU time of the client process for each command, its threads included."""
    p50_us: float
    p99_us: float


class _Deadline:
    """Seen by all callers; one attribute is the cheapest thing that they can look at."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        asyncio.get_running_loop().call_later(seconds, self._pass)

    def _pass(self) -> None:
        self.passed = True


async def compare(contenders: Mapping[Name, Contender], *, rounds: int, seconds: float) -> dict[Name, Figure]:
    for contender in contenders.values():
        await warm_up(contender)
    done: dict[Name, list[Round]] = {name: [] for name in contenders}
    with without_leftovers():
        for _ in range(rounds):
            for name, contender in contenders.items():
                done[name].append(await run_round(contender, seconds))
    return {name: summary(of_one) for name, of_one in done.items()}


@contextmanager
def without_leftovers() -> Iterator[None]:
    """Keep the garbage collector off what setting up has left: else somebody's round pays for the looking."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def run_round(contender: Contender, seconds: float) -> Round:
    latencies_us: list[float] = []
    # Only of a lone caller: with many, the time of one is mostly the time of the others before it.
    call = _call_timed if contender.callers == 1 else _call
    began, cpu_began = time.perf_counter(), time.process_time()
    deadline = _Deadline(seconds)
    counts = await asyncio.gather(
        *(call(contender.operation, key, deadline, latencies_us) for key in _keys(contender.callers))
    )
    return Round(
        commands=sum(counts) * contender.commands,
        seconds=time.perf_counter() - began,
        cpu_seconds=time.process_time() - cpu_began,
        latencies_us=latencies_us,
    )


async def warm_up(contender: Contender) -> None:
    """Connections open, code paths run, keys exist."""
    for _ in range(2):
        await asyncio.gather(*(_once(contender.operation, key) for key in _keys(contender.callers)))


def summary(rounds: Sequence[Round]) -> Figure:
    latencies_us = [latency for each in rounds for latency in each.latencies_us]
    percentiles = quantiles(latencies_us, n=100) if len(latencies_us) > 1 else [0.0] * 99
    return Figure(
        per_second=median(each.commands / each.seconds for each in rounds),
        cpu_us=median(each.cpu_seconds / each.commands * 1e6 for each in rounds),
        p50_us=percentiles[49],
        p99_us=percentiles[98],
    )


async def _once(operation: Operation, key: str) -> None:
    await operation(key)


async def _call(operation: Operation, key: str, deadline: _Deadline, _: list[float]) -> int:
    done = 0
    while not deadline.passed:
        await operation(key)
        done += 1
    return done


async def _call_timed(operation: Operation, key: str, deadline: _Deadline, latencies_us: list[float]) -> int:
    clock = time.perf_counter_ns
    while not deadline.passed:
        began = clock()
        await operation(key)
        latencies_us.append((clock() - began) / 1000)
    return len(latencies_us)


def _keys(callers: int) -> list[str]:
    return [f"benchmark:{caller}" for caller in range(callers)]
