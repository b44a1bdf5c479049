"""Namespaces as contexts: each is a context whose type names the one above it, so that those below one are found
without looking at all others.

A context with items in it lives longer by being used; one that has only others below it does not. So all on the way are
seen to whenever something below them is written or read, once in a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from kizuna.errors import ContextExists, ContextMissing
from kizuna.memory.langgraph.names import TYPE, context_of, namespace_of, type_of

if TYPE_CHECKING:
    from kizuna.memory.memory import Memory

Namespace = tuple[str, ...]

AT_ONCE = 32
"""How many namespaces are looked into at the same time."""

# Of the life of a context: how long it is taken for granted that a context is there.
_SEEN_TO_FOR = 0.25
_MOST_KNOWN = 10_000


class Namespaces:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._life_s = memory.store.settings.memory.context_most_s
        self.longest_s = self._life_s * (1 - _SEEN_TO_FOR)
        """What lives longer might outlive the contexts on the way to it."""
        self._seen_to: dict[Namespace, float] = {}
        self._under_way: dict[Namespace, asyncio.Task[None]] = {}

    async def see_to(self, namespace: Namespace) -> None:
        """Make sure that it and all above it are there, and live as long as anything that is written now."""
        since = time.monotonic() - self._life_s * _SEEN_TO_FOR
        way = [namespace[:depth] for depth in range(1, len(namespace) + 1)]
        due = [each for each in way if self._seen_to.get(each, since) <= since]
        if due:
            await asyncio.gather(*map(self._once, due))

    async def _once(self, namespace: Namespace) -> None:
        """However many want it at the same time. Who is cancelled does not cancel it for the others."""
        task = self._under_way.get(namespace)
        if task is None:
            task = self._under_way[namespace] = asyncio.create_task(self._see_to_one(namespace))
            task.add_done_callback(lambda _: self._under_way.pop(namespace))
        await asyncio.shield(task)

    async def _see_to_one(self, namespace: Namespace) -> None:
        began = time.monotonic()
        await self._create_or_touch(namespace)
        if len(self._seen_to) >= _MOST_KNOWN:
            self._seen_to.clear()
        self._seen_to[namespace] = began

    async def _create_or_touch(self, namespace: Namespace) -> None:
        id_ = context_of(namespace)
        # For people. One half of a surrogate pair is no text that could be sent.
        name = namespace[-1].encode(errors="replace").decode() or "-"
        try:
            await self._memory.contexts.create(name, type_of(namespace), id=id_, ttl_s=self._life_s)
        except ContextExists:
            try:
                await self._memory.contexts.touch(id_)
            except ContextMissing:  # it ended just now
                await self._create_or_touch(namespace)

    async def below(self, namespace: Namespace) -> AsyncIterator[Namespace]:
        """All that begin with it, itself among them, in their order; also those that are empty."""
        yield namespace
        async for each in self._each_and_below(await self._next_below(namespace)):
            yield each

    async def _each_and_below(self, namespaces: list[Namespace]) -> AsyncIterator[Namespace]:
        for start in range(0, len(namespaces), AT_ONCE):
            some = namespaces[start : start + AT_ONCE]
            further = await asyncio.gather(*map(self._next_below, some))
            for each, next_below in zip(some, further, strict=True):
                yield each
                async for one in self._each_and_below(next_below):
                    yield one

    async def _next_below(self, namespace: Namespace) -> list[Namespace]:
        contexts = self._memory.contexts.all(type=context_of(namespace))
        return sorted([namespace_of(context.id) async for context in contexts])

    async def is_empty(self, namespace: Namespace) -> bool:
        page = await self._memory.list(type=TYPE, context=context_of(namespace), limit=1)
        return not page.items and not page.cursor
