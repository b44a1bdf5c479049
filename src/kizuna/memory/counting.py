"""How much is remembered: counted, not read. What has ended and not been swept yet counts among its type."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from kizuna.errors import Refused
from kizuna.memory.item import GLOBAL, HIGHEST_PRIORITY
from kizuna.memory.keys import (
    CONTEXTS_ACTIVE,
    CONTEXTS_EXPIRY,
    FEED,
    ITEMS_EXPIRY,
    ITEMS_OF_CONTEXT,
    ITEMS_OF_PRIORITY,
    ITEMS_OF_TYPE,
)
from kizuna.store.keys import Key, Roots
from kizuna.store.scanning import names_of_all

if TYPE_CHECKING:
    from kizuna.store.client import Store


class Totals(Struct, frozen=True, kw_only=True):
    items: int
    ended: int
    """Items whose time is over, and that nobody has swept yet."""
    by_type: dict[str, int]
    """The most frequent first."""
    by_priority: dict[int, int]
    contexts: int
    active_contexts: int
    events: int
    """In the durable feed."""


async def count_all(store: Store) -> Totals:
    """Looks through the names of all keys for those of types, in small steps."""
    roots = Roots(store.settings.roots.memory, store.settings.memory.shards)
    now_ms = int(await store.time_s() * 1000)
    live, all_items, contexts, active, events = await asyncio.gather(
        sum_of(store, roots, "ZCOUNT", ITEMS_EXPIRY, f"({now_ms}", "+inf"),
        sum_of(store, roots, "ZCARD", ITEMS_EXPIRY),
        sum_of(store, roots, "ZCOUNT", CONTEXTS_EXPIRY, f"({now_ms}", "+inf"),
        sum_of(store, roots, "SCARD", CONTEXTS_ACTIVE),
        sum_of(store, roots, "XLEN", FEED),
    )
    return Totals(
        items=live,
        # Something may have been added between the two.
        ended=max(all_items - live, 0),
        by_type=await _by_type(store, roots),
        by_priority=await _by_priority(store, roots),
        contexts=contexts,
        active_contexts=active,
        events=events,
    )


async def count_items(store: Store, *, type: str | None, context: str | None) -> int:  # noqa: A002
    """Of a type, of a context, of both, or of all."""
    roots = Roots(store.settings.roots.memory, store.settings.memory.shards)
    if type is not None and context is not None:
        where = roots.all if context == GLOBAL else (roots.of(context),)
        return sum(await asyncio.gather(*(_count_both(store, root, type, context) for root in where)))
    if context == GLOBAL:
        return await sum_of(store, roots, "SCARD", ITEMS_OF_CONTEXT, context=GLOBAL)
    if context is not None:
        index = ITEMS_OF_CONTEXT.build(roots.of(context), context=context)
        return int(await store.call("SCARD", index))
    if type is not None:
        return await sum_of(store, roots, "SCARD", ITEMS_OF_TYPE, type=type)
    return await sum_of(store, roots, "ZCARD", ITEMS_EXPIRY)


async def _count_both(store: Store, root: str, type_: str, context: str) -> int:
    both = ITEMS_OF_TYPE.build(root, type=type_), ITEMS_OF_CONTEXT.build(root, context=context)
    try:
        return int(await store.call_beside(both[0], "SINTERCARD", 2, *both))
    except Refused as refused:
        if "unknown command" not in refused.what:
            raise
    # Servers before Redis 7 can only name them.
    return len(await store.call("SINTER", *both))


async def sum_of(store: Store, roots: Roots, count: str, family: Key, *how: str, **names: str) -> int:
    """What this command counts below all roots together."""
    return sum(await asyncio.gather(*(store.call(count, family.build(root, **names), *how) for root in roots.all)))


async def _by_type(store: Store, roots: Roots) -> dict[str, int]:
    types = sorted({names["type"] async for names in names_of_all(store, roots, ITEMS_OF_TYPE)})
    counts = [await sum_of(store, roots, "SCARD", ITEMS_OF_TYPE, type=name) for name in types]
    return dict(sorted(zip(types, counts, strict=True), key=lambda pair: -pair[1]))


async def _by_priority(store: Store, roots: Roots) -> dict[int, int]:
    priorities = range(1, HIGHEST_PRIORITY + 1)
    asked = (sum_of(store, roots, "ZCARD", ITEMS_OF_PRIORITY, priority=str(priority)) for priority in priorities)
    counts = await asyncio.gather(*asked)
    return {priority: count for priority, count in zip(priorities, counts, strict=True) if count}
