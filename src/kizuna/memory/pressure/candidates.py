"""Which items go first: the lowest priority, and of one priority, what ends soonest. Found without a scan of all keys.

There is an index by priority and one by end, and none by both. So one of the two is gone through in steps, and the
other one asked about the members of each step; whichever of them is the shorter way. Either way the order is exact for
what was there all the while; what is created or lives longer meanwhile may come in a later call.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kizuna.memory import keys
from kizuna.memory.item import HIGHEST_PRIORITY
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.store.client import Store

walk_priority = Script.load("kizuna.memory", "walk_priority")

# Members that one script passes: half a millisecond.
_STEP = 500


class Candidate(NamedTuple):
    ends_ms: float
    id: bytes
    root: str


async def priorities(store: Store, roots: Iterable[str]) -> list[str]:
    """All that items have, the lowest first; what is no number goes last."""
    told = await asyncio.gather(*(store.call("SMEMBERS", keys.ODD_PRIORITIES.build(root)) for root in roots))
    odd = {raw.decode(errors="replace") for raw in chain.from_iterable(told)}
    usual = {str(priority) for priority in range(1, HIGHEST_PRIORITY + 1)}
    legal = {name for name in odd if keys.ITEMS_OF_PRIORITY.takes(priority=name)}
    return sorted(usual | legal, key=rank_of)


def rank_of(priority: str) -> float:
    try:
        number = float(priority)
    except ValueError:
        return math.inf
    return math.inf if math.isnan(number) else number


async def soonest_of_all(store: Store, roots: Iterable[str], priority: str, most: int) -> list[Candidate]:
    """Up to so many of a priority, below any of the roots, in the order of their ends."""
    found = await asyncio.gather(*(soonest(store, root, priority, most) for root in roots))
    return nsmallest(most, chain.from_iterable(found))


async def soonest(store: Store, root: str, priority: str, most: int) -> list[Candidate]:
    """The same below one root."""
    of_priority, expiry = _indexes(root, priority)
    count, items = await asyncio.gather(store.call("ZCARD", of_priority), store.call("ZCARD", expiry))
    if not count:
        return []
    # Of those that end soonest, one in items/count is of this priority.
    if count <= most * items / count:
        found = [Candidate(ends, id_, root) async for id_, _, ends in _walk(store, of_priority, expiry)]
        return nsmallest(most, found)
    taken: list[Candidate] = []
    async for id_, ends, _ in _walk(store, expiry, of_priority):
        taken.append(Candidate(ends, id_, root))
        if len(taken) == most:
            break
    return taken


async def ending_later(store: Store, root: str, priority: str, later_than_ms: float) -> AsyncIterator[bytes]:
    """Those of a priority that end later than this."""
    of_priority, expiry = _indexes(root, priority)
    count, items, later = await asyncio.gather(
        store.call("ZCARD", of_priority),
        store.call("ZCARD", expiry),
        store.call("ZCOUNT", expiry, f"({later_than_ms:.0f}", "+inf"),
    )
    if not count or not later:
        return
    if count <= later:
        async for id_, _, ends in _walk(store, of_priority, expiry):
            if ends > later_than_ms:
                yield id_
    else:
        # What is shortened on the way moves before the others: some of them are seen twice, and none is missed.
        async for id_, ends, _ in _walk(store, expiry, of_priority, start=items - later):
            if ends > later_than_ms:
                yield id_


async def _walk(store: Store, walked: str, also: str, *, start: int = 0) -> AsyncIterator[tuple[bytes, float, float]]:
    """Members of both, in the order of the first, with their scores in each."""
    while True:
        passed, *found = await walk_priority(store, walked=walked, also=also, start=start, most=_STEP)
        for at in range(0, len(found), 3):
            yield found[at], float(found[at + 1]), float(found[at + 2])
        if passed < _STEP:
            return
        start += passed


def _indexes(root: str, priority: str) -> tuple[str, str]:
    return keys.ITEMS_OF_PRIORITY.build(root, priority=priority), keys.ITEMS_EXPIRY.build(root)
