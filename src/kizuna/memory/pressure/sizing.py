"""What items and their indexes use below a root: estimated from some of them, since asking for all would take long.

    items x (mean size of an item + mean share of an item in the indexes that it stands in)

The share is the size of an index divided by its members; so over all items, each index counts once. Not counted are the
feed, which cannot become smaller by removing items, and what few items have: dependents and generations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kizuna.memory import keys
from kizuna.memory.raw_names import raw_key

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.keys import Key

_SAMPLES = 100


async def estimate_bytes(store: Store, root: str) -> int:
    """Raises StoreError."""
    expiry = keys.ITEMS_EXPIRY.build(root)
    items, sample = await asyncio.gather(store.call("ZCARD", expiry), store.call("ZRANDMEMBER", expiry, _SAMPLES))
    if not sample:
        return 0
    sizes = await _sizes_of_items(store, root, sample)
    shared = await asyncio.gather(*(_size(store, key) for key in (expiry, keys.ITEM_PLACES.build(root))))
    return round(int(items) * sizes) + sum(shared)


async def _sizes_of_items(store: Store, root: str, sample: Sequence[bytes]) -> float:
    """The mean, with the share of the indexes that not all items are in."""
    names = [raw_key(keys.ITEM, root, id_) for id_ in sample]
    # All of its fields, few as they are: of five, the one that is long would count too much, or not at all.
    sizes = await asyncio.gather(*(_size(store, name, "SAMPLES", 0) for name in names))
    fields = await asyncio.gather(*(store.call("HMGET", name, "type", "contextId", "priority") for name in names))
    indexes = [_indexes(root, *values) for values in fields if None not in values]
    shares = await _shares(store, {key: family for of_item in indexes for key, family in of_item.items()})
    return (sum(sizes) + sum(shares[key] for of_item in indexes for key in of_item)) / len(sample)


def _indexes(root: str, type_: bytes, context: bytes, priority: bytes) -> dict[bytes, Key]:
    return {
        raw_key(keys.ITEMS_OF_TYPE, root, type_): keys.ITEMS_OF_TYPE,
        raw_key(keys.TYPE_ORDER, root, type_): keys.TYPE_ORDER,
        raw_key(keys.ITEMS_OF_CONTEXT, root, context): keys.ITEMS_OF_CONTEXT,
        raw_key(keys.CONTEXT_ORDER, root, context): keys.CONTEXT_ORDER,
        raw_key(keys.ITEMS_OF_PRIORITY, root, priority): keys.ITEMS_OF_PRIORITY,
    }


async def _shares(store: Store, indexes: Mapping[bytes, Key]) -> dict[bytes, float]:
    sizes = await asyncio.gather(*(_size(store, key) for key in indexes))
    counts = await asyncio.gather(
        *(store.call("ZCARD" if family.type == "zset" else "SCARD", key) for key, family in indexes.items())
    )
    return {key: size / count if count else 0.0 for key, size, count in zip(indexes, sizes, counts, strict=True)}


async def _size(store: Store, key: str | bytes, *how: str | int) -> int:
    """0 if it is no longer there."""
    return int(await store.call("MEMORY", "USAGE", key, *how) or 0)
