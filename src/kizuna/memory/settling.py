"""To settle: what others wrote or removed gets, or loses, what ours have: places, orders, versions.

Ids are as they stand on the server, since others may have chosen them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kizuna.errors import Refused, StoreError
from kizuna.memory import keys
from kizuna.memory.item import HIGHEST_PRIORITY
from kizuna.memory.raw_names import shown
from kizuna.memory.scripts import script
from kizuna.store.scanning import raw_members

if TYPE_CHECKING:
    from kizuna.memory.context import ContextQuery
    from kizuna.memory.server_contexts import ServerContexts
    from kizuna.memory.shard import Shard
    from kizuna.store.client import Store
    from kizuna.store.keys import Key
    from kizuna.store.scripts import Script
    from kizuna.store.wire import Argument

settle_items = script("settle_items")
settle_contexts = script("settle_contexts")

# An index of so many is settled while somebody waits for a list of it.
_SMALL = 1_000
# And of a larger one so many of each priority.
_NEWEST_OF_LARGE = 20
_LOOKED_AT_ONCE = 500
# By one script: a millisecond or two, for which others wait.
_SETTLED_AT_ONCE = 50


async def settle(
    keeper: ServerContexts,
    shard: Shard,
    ids: Sequence[bytes],
    *,
    type_: str | bytes = "",
    context: str | bytes = "",
    priority: str | bytes = "",
    again: bool = False,
) -> list[bytes]:
    """Make everything about these items agree with their hashes; `type_`, `context` and `priority` are those in whose
    index they were found, and `again` is for those as well that seem to be in order. Of each: settled, ended, forgotten
    or fine."""
    return await _in_portions(
        settle_items,
        keeper.store,
        ids,
        **shard.told,
        expiry=shard.expiry,
        usual_ms=keeper.policy.usual_item_ms,
        type_=type_,
        context=context,
        priority=priority,
        again=int(again),
    )


async def settle_these_contexts(
    keeper: ServerContexts, shard: Shard, ids: Sequence[bytes], *, type_: str | bytes = "", again: bool = False
) -> list[bytes]:
    """The same of contexts."""
    return await _in_portions(
        settle_contexts,
        keeper.store,
        ids,
        **shard.told,
        expiry=shard.contexts_expiry,
        bounds=keeper.policy.bounds,
        type_=type_,
        again=int(again),
    )


async def _in_portions(script: Script, store: Store, ids: Sequence[bytes], **told: Argument) -> list[bytes]:
    outcomes = []
    for start in range(0, len(ids), _SETTLED_AT_ONCE):
        rows = [{"id": id_} for id_ in ids[start : start + _SETTLED_AT_ONCE]]
        outcomes += await script.rows(store, rows, **told)  # type: ignore[arg-type] # no argument is called timeout_s
    return outcomes


class OrderedIndex(NamedTuple):
    """Of a type or of a context, the other is empty: a set that everybody knows, and our order of its members."""

    root: str
    type: str = ""
    context: str = ""

    @property
    def members(self) -> str:
        if self.context:
            return keys.ITEMS_OF_CONTEXT.build(self.root, context=self.context)
        return keys.ITEMS_OF_TYPE.build(self.root, type=self.type)

    @property
    def order(self) -> str:
        if self.context:
            return keys.CONTEXT_ORDER.build(self.root, context=self.context)
        return keys.TYPE_ORDER.build(self.root, type=self.type)


async def settle_index(keeper: ServerContexts, index: OrderedIndex) -> None:
    """One that does not agree with its order, for others wrote or removed items: now, if it is small. If it is large,
    those that came last, and the rest is left to the sweeper."""
    if await keeper.store.call("SCARD", index.members) <= _SMALL:
        await settle_whole(keeper, index)
    else:
        keeper.unsettled.append(index)
        await settle_newest(keeper, keeper.shard_at(index.root), _NEWEST_OF_LARGE)


async def settle_whole(keeper: ServerContexts, index: OrderedIndex, *, pause_s: float = 0.0) -> None:
    """All items that the index has, and those that only its order has; some hundreds at a time, with pauses between."""
    shard = keeper.shard_at(index.root)
    async for ids in raw_members(keeper.store, index.members, "set"):
        await settle(keeper, shard, ids, type_=index.type, context=index.context)
        await asyncio.sleep(pause_s)
    async for ids in raw_members(keeper.store, index.order, "zset"):
        await settle(keeper, shard, ids)
        await asyncio.sleep(pause_s)


async def settle_newest(keeper: ServerContexts, shard: Shard, number: int) -> int:
    """So many of each priority that were created last. Returns how many were not in order."""
    families = [keys.ITEMS_OF_PRIORITY.build(shard.root, priority=str(p)) for p in range(1, HIGHEST_PRIORITY + 1)]
    newest = await keeper.store.call_all([("ZREVRANGE", key, 0, number - 1) for key in families])
    return _not_fine(await settle(keeper, shard, [id_ for found in newest for id_ in _unless_refused(found)]))


async def settle_some(keeper: ServerContexts, shard: Shard, cursor: bytes, family: Key) -> tuple[bytes, int]:
    """The next few of an index of all items, or of all that have a place. Returns where to go on (`0`: it was the end),
    and how many were not in order."""
    command = "ZSCAN" if family.type == "zset" else "HSCAN"
    cursor, found = await keeper.store.call(command, family.build(shard.root), cursor, "COUNT", _LOOKED_AT_ONCE)
    return cursor, _not_fine(await settle(keeper, shard, found[::2]))


async def settle_all_contexts(keeper: ServerContexts, shard: Shard) -> int:
    """Every context that any index has. Returns how many were not in order."""
    families = (keys.CONTEXTS_EXPIRY, keys.CONTEXTS_ACTIVE, keys.CONTEXT_PLACES)
    ids = [await _all_in(keeper, family.build(shard.root), family) for family in families]
    return _not_fine(await settle_these_contexts(keeper, shard, sorted(set().union(*ids))))


async def context_ids(keeper: ServerContexts, query: ContextQuery) -> set[str]:
    """Of all contexts that may fit: those of the type, or else all. Those that others wrote are among them, and get
    what ours have; but not those whose ids no key of ours can have, which nobody could ask for."""
    found = await asyncio.gather(*(_context_ids_at(keeper, shard, query) for shard in keeper.shards))
    return {id_ for id_ in map(shown, set().union(*found)) if keys.CONTEXT.takes(context=id_)}


async def _context_ids_at(keeper: ServerContexts, shard: Shard, query: ContextQuery) -> set[bytes]:
    if query.type is None:
        ids = await _all_in(keeper, shard.contexts_expiry, keys.CONTEXTS_EXPIRY)
    else:
        index = keys.CONTEXTS_OF_TYPE.build(shard.root, type=query.type)
        ids = await _all_in(keeper, index, keys.CONTEXTS_OF_TYPE)
    await settle_these_contexts(keeper, shard, sorted(ids), type_=query.type or "")
    return ids


async def _all_in(keeper: ServerContexts, key: str, family: Key) -> set[bytes]:
    return {id_ async for some in raw_members(keeper.store, key, family.type) for id_ in some}


def _unless_refused(found: Any) -> Sequence[bytes]:
    """What a key holds; nothing, if somebody else put something in its place."""
    if isinstance(found, StoreError) and not isinstance(found, Refused):
        raise found
    return () if isinstance(found, Refused) else found


def _not_fine(outcomes: Sequence[bytes]) -> int:
    """How many were not in order."""
    return sum(outcome != b"fine" for outcome in outcomes)
