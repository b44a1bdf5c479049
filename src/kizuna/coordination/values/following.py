"""Keeps a memory of values up to date.

    notification ──> look at that name ──┐
    twice a second ─> look at all known ─┼──> memory
    LookAgain, start ─> SCAN, then look ─┘

A notification makes it fast, and looking makes it sure: where none comes, or may come, a change is seen all the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from itertools import islice
from typing import TYPE_CHECKING

from kizuna.errors import KizunaError, StoreError
from kizuna.store.events import Change as KeyChange
from kizuna.store.events import LookAgain
from kizuna.store.scanning import glob_of, names_in, names_of_all

if TYPE_CHECKING:
    from kizuna.coordination.values.memory import Memory
    from kizuna.store.client import Store
    from kizuna.store.events import Feed

log = logging.getLogger("kizuna.coordination")

LOOK_EVERY_S = 0.5
"""A change is to be seen within a second, also when nothing tells of it."""

# Whatever can give a string another value, or take it away.
_KINDS = (
    "set", "setrange", "append", "incrby", "incrbyfloat", "del", "expired", "evicted", "rename_from", "rename_to",
    "copy_to", "restore", "move_from", "move_to",
)  # fmt: skip
_TRY_TO_HEAR_EVERY_S = 10.0
_READ_TOGETHER = 1000


class Follower:
    """A service. Fails to start if the server cannot be read; later, it goes on until it can be."""

    def __init__(self, store: Store, memory: Memory, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self._store, self._memory = store, memory
        self._look_every_s = look_every_s
        self._must_search = True
        self._is_behind = False
        self._was_deaf = False

    async def run(self, started: asyncio.Event) -> None:
        try:
            while True:
                async with AsyncExitStack() as subscription:
                    feed = await self._subscribed(subscription)
                    if not started.is_set():
                        await self.search()
                        self._memory.enter()
                        started.set()
                    await self._follow(feed)
        finally:
            if started.is_set():
                self._memory.leave()

    async def search(self) -> None:
        """Find also the names that nobody has declared or asked for, and look at everything."""
        memory = self._memory
        async for found in names_of_all(self._store, memory.roots, memory.family):
            memory.know(found["name"])
        await self.look()
        memory.complete()
        self._must_search = False

    async def look(self) -> None:
        """Look at everything that is known."""
        await look_at(self._store, self._memory)

    async def _subscribed(self, stack: AsyncExitStack) -> Feed[KeyChange] | None:
        # Whatever was written before the subscription stood has to be searched for.
        self._must_search = True
        glob = glob_of(self._memory.family, self._memory.roots)
        try:
            feed = await stack.enter_async_context(self._store.events.watch(glob, kinds=_KINDS))
        except KizunaError as error:
            self._note_deafness(error)
            return None
        self._was_deaf = False
        return feed

    async def _follow(self, feed: Feed[KeyChange] | None) -> None:
        """Until it is time to subscribe anew, which is never while notifications come."""
        clock = asyncio.get_running_loop().time
        again_at = clock() + _TRY_TO_HEAR_EVERY_S
        look_at_s = clock()
        while feed is not None or clock() < again_at:
            pause_s = max(0.0, look_at_s - clock())
            try:
                names = await self._heard(feed, pause_s)
            except KizunaError as error:
                self._note_deafness(error)
                feed, again_at = None, clock() + _TRY_TO_HEAR_EVERY_S
                continue
            if clock() >= look_at_s or self._must_search:
                await self._look_if_possible(None)
                look_at_s = clock() + self._look_every_s
            elif names:
                await self._look_if_possible(names)

    async def _heard(self, feed: Feed[KeyChange] | None, pause_s: float) -> list[str]:
        """Names that have changed, as soon as there are any, or nothing after the pause."""
        if feed is None:
            await asyncio.sleep(pause_s)
            return []
        heard: list[str] = []
        event = await feed.next(timeout_s=pause_s)
        while event is not None and len(heard) < _READ_TOGETHER:
            if isinstance(event, LookAgain):
                self._must_search = True
            elif found := names_in(self._memory.family, self._memory.roots, event.key):
                self._memory.know(found["name"])
                heard.append(found["name"])
            event = await feed.next(timeout_s=0)
        return heard

    async def _look_if_possible(self, names: list[str] | None) -> None:
        try:
            if self._must_search:
                await self.search()
            else:
                await look_at(self._store, self._memory, names)
        except StoreError as error:
            if not self._is_behind:
                log.warning("values are not up to date", extra={"noun": self._memory.noun, "error": str(error)})
            self._is_behind = True
        else:
            if self._is_behind:
                log.info("values are up to date again", extra={"noun": self._memory.noun})
            self._is_behind = False

    def _note_deafness(self, error: KizunaError) -> None:
        if not self._was_deaf:
            extra = {"noun": self._memory.noun, "error": str(error), "look_every_s": self._look_every_s}
            log.warning("no notifications, looking instead", extra=extra)
        self._was_deaf = True


async def look_at(store: Store, memory: Memory, names: Iterable[str] | None = None) -> None:
    """Take what is on the server under these names, or under all that are known."""
    chosen = memory.known if names is None else _by_root(memory, names)
    await asyncio.gather(*(_look_below(store, memory, known) for known in chosen.values() if known))
    if names is None:
        memory.looked_at = time.monotonic()


async def _look_below(store: Store, memory: Memory, known: dict[str, str]) -> None:
    pairs = iter(list(known.items()))
    # One after the other, each taken as it comes: what is read later must not be taken earlier.
    while some := list(islice(pairs, _READ_TOGETHER)):
        values = await store.call("MGET", *(key for _, key in some))
        for (name, _), raw in zip(some, values, strict=True):
            memory.take(name, raw)


def _by_root(memory: Memory, names: Iterable[str]) -> dict[str, dict[str, str]]:
    chosen: dict[str, dict[str, str]] = {}
    for name in names:
        root = memory.roots.of(name)
        if key := memory.known[root].get(name):
            chosen.setdefault(root, {})[name] = key
    return chosen
