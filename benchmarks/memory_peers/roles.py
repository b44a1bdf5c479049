"""What the processes of all peers do when they are ordered to, and how a round of one operation is counted.

check · create, get, update, list, delete · clear · create_many, get_many, delete_many · clear
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from statistics import quantiles
from typing import Any, Protocol

from benchmarks.memory_peers.payload import BATCH, CHANGED, CONTENT, ITEMS_PER_CONTEXT, Draft, context_of, draft
from benchmarks.peer_roles import Orders

FILLED_AT_ONCE = 1_000
ASKED_FOR = 5_000
"""How many of those that were filled in are read and changed, at random."""


class NotOffered(Exception):
    """The library has nothing for this."""


class Memory(Protocol):
    """What is measured. Contents are decoded by all who read: that is what they are read for."""

    async def create(self, new: Draft) -> str:
        """Its id."""

    async def get(self, id: str) -> Any:  # noqa: A002 - as everywhere
        """Its content, or None."""

    async def update(self, id: str, content: Any) -> None: ...  # noqa: A002

    async def list(self, context: str) -> Sequence[Any]:
        """The contents of the fifty items of a context."""

    async def delete(self, id: str) -> None: ...  # noqa: A002

    async def create_many(self, new: Sequence[Draft]) -> Sequence[str]: ...

    async def get_many(self, ids: Sequence[str]) -> Sequence[Any]: ...

    async def delete_many(self, ids: Sequence[str]) -> None: ...

    async def clear(self) -> None:
        """Leave nothing of what was remembered."""


class Subject:
    """A memory, and what there is to ask of it: what was made since it was cleared, or what it was filled with."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._made: list[str] = []
        self._kept: list[str] = []
        self._numbers = itertools.count()
        self._filled = 0

    def operation(self, name: str) -> Callable[[Any], Awaitable[Any]]:
        if name == "update":
            return lambda id: self.memory.update(id, CHANGED)  # noqa: A006
        return {"create": self._create, "create_many": self._create_many}.get(name) or getattr(self.memory, name)

    def arguments(self, name: str) -> Iterator[Any]:
        """Of one operation after the other: without end, except for those that remove."""
        match name:
            case "create":
                return map(draft, self._numbers)
            case "create_many":
                return (list(itertools.islice(map(draft, self._numbers), BATCH)) for _ in itertools.count())
            case "get" | "update":
                return itertools.cycle(self._kept or self._made)
            case "list":
                return itertools.cycle(self._contexts())
            case "get_many":
                return itertools.cycle(list(_batches(self._made)))
            case "delete":
                return iter(self._taken())
            case _:
                return _batches(self._taken())

    async def fill(self, items: int) -> None:
        """So many more, of which some are asked for from then on."""
        for _ in range(0, items, FILLED_AT_ONCE):
            new = list(itertools.islice(map(draft, self._numbers), FILLED_AT_ONCE))
            self._kept += await self.memory.create_many(new)
        self._filled += items

    def keep_some(self) -> None:
        random.shuffle(self._kept)
        del self._kept[ASKED_FOR:]

    async def top_up(self) -> None:
        """There is at least one whole context."""
        while not self._filled and len(self._made) < ITEMS_PER_CONTEXT:
            await self._create(draft(next(self._numbers)))

    async def clear(self) -> None:
        await self.memory.clear()
        self._made, self._numbers = [], itertools.count()

    async def _create(self, new: Draft) -> None:
        self._made.append(await self.memory.create(new))

    async def _create_many(self, new: Sequence[Draft]) -> None:
        self._made += await self.memory.create_many(new)

    def _contexts(self) -> list[str]:
        """Those that are full, in any order."""
        items = self._filled or len(self._made)
        contexts = [context_of(number) for number in range(0, items - ITEMS_PER_CONTEXT + 1, ITEMS_PER_CONTEXT)]
        return random.sample(contexts, min(len(contexts), ASKED_FOR))

    def _taken(self) -> list[str]:
        made, self._made = self._made, []
        return made


async def perform(subject: Subject, operation: str, callers: int, seconds: float, most: int = 0) -> dict[str, Any]:
    """So many callers, each of which awaits one operation before it begins the next, until the time is up, or nothing
    is left to be done, or `most` are done."""
    latencies_us: list[float] = []
    perform_one = subject.operation(operation)
    arguments = subject.arguments(operation)
    if most:
        arguments = itertools.islice(arguments, most)
    clock = time.perf_counter

    async def call() -> None:
        for argument in arguments:
            began = clock()
            await perform_one(argument)
            ended = clock()
            latencies_us.append((ended - began) * 1e6)
            if ended > ends_at:
                return

    try:
        began, cpu_began = clock(), time.process_time()
        ends_at = began + seconds
        await asyncio.gather(*(call() for _ in range(callers)))
        # Until the last answer, so that a slow peer is not credited with what it had not done when the time was up.
        took_s, cpu_s = clock() - began, time.process_time() - cpu_began
    except NotOffered:
        return {}
    await subject.top_up()
    return {"done": len(latencies_us), "seconds": took_s, "cpu_s": cpu_s, **_percentiles(latencies_us)}


async def check(subject: Subject) -> dict[str, Any]:
    """That what is measured is done: what was written is read, and what was deleted is not."""
    memory = subject.memory
    ids = [await memory.create(draft(number)) for number in range(ITEMS_PER_CONTEXT)]
    _expect("get", await memory.get(ids[7]), CONTENT)
    await memory.update(ids[7], CHANGED)
    _expect("get after an update", await memory.get(ids[7]), CHANGED)
    await memory.update(ids[7], CONTENT)
    many = await memory.create_many([draft(number) for number in range(BATCH, 2 * BATCH)])
    await _check_where_offered("list", memory.list(context_of(0)), [CONTENT] * ITEMS_PER_CONTEXT)
    await _check_where_offered("get_many", memory.get_many(many), [CONTENT] * BATCH)
    await memory.delete(ids[7])
    await memory.delete_many(many)
    _expect("get after a deletion", [await memory.get(ids[7]), await memory.get(many[0])], [None, None])
    await memory.clear()
    return {}


async def clear(subject: Subject) -> dict[str, Any]:
    await subject.clear()
    return {}


async def fill(subject: Subject, items: int) -> dict[str, Any]:
    await subject.fill(items)
    return {}


async def keep_some(subject: Subject) -> dict[str, Any]:
    subject.keep_some()
    return {}


async def _check_where_offered(what: str, reading: Awaitable[Any], expected: Any) -> None:
    with contextlib.suppress(NotOffered):
        _expect(what, list(await reading), expected)


def _expect(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise AssertionError(f"{what}: {found!r:.200} instead of {expected!r:.200}")


def _percentiles(latencies_us: Sequence[float]) -> dict[str, float]:
    percentiles = quantiles(latencies_us, n=100) if len(latencies_us) > 1 else [0.0] * 99
    return {"p50_us": percentiles[49], "p99_us": percentiles[98]}


def _batches(ids: Iterable[str]) -> Iterator[list[str]]:
    """Whole ones."""
    waiting = iter(ids)
    while len(batch := list(itertools.islice(waiting, BATCH))) == BATCH:
        yield batch


ORDERS: Orders = {"check": check, "perform": perform, "clear": clear, "fill": fill, "keep_some": keep_some}
