"""The server as a keeper: every change is one script, and what is asked for in one turn of the loop is one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kizuna.errors import ContentSealed, ItemExists, ItemMissing, VersionConflict
from kizuna.memory.item import GLOBAL, Item, ItemChange, NewItem, Opener
from kizuna.memory.keepers import FoundItems, Removed, Written, each
from kizuna.memory.raw_names import sent
from kizuna.memory.server_contexts import ServerContexts
from kizuna.memory.shard_items import HELD_PAUSE_S, Outcome, ShardItems
from kizuna.store.sharding import roots_for

if TYPE_CHECKING:
    from kizuna.memory.query import Page, Query
    from kizuna.memory.shard import Shard
    from kizuna.store.client import Store

Read = list[Item]
Gone = list[bytes]


class ServerKeeper(ServerContexts):
    """Implements `Keeper`. An item is in the shard of its context; if that is not said, all shards are asked at once,
    since only one has it."""

    def __init__(self, store: Store, opener: Opener | None) -> None:
        settings = store.settings
        super().__init__(store, roots_for(store, "memory", settings.roots.memory, settings.memory.shards))
        self._items = {shard.root: ShardItems(store, shard, self.policy, self.doubts, opener) for shard in self.shards}
        self._everywhere = list(self._items.values())
        self._only = self._everywhere[0] if len(self._everywhere) == 1 else None

    def items_of(self, context: str, id_: str) -> ShardItems:
        """Where an item is written. The global context lies in all shards: items that a context leaves to it stay
        where they are, and others are spread by their ids."""
        return self._only or self._items[self.roots.of(id_ if context == GLOBAL else context)]

    async def write(self, new: NewItem) -> Item:
        if self._only is not None:
            return await self._only.write(new)
        here = self.items_of(new.context, new.id)
        elsewhere = await self._found_elsewhere(here, new.id)
        if elsewhere is None:
            return await here.write(new)
        there = (await elsewhere.read([new.id]))[0]
        if there is None:
            return await here.write(new)
        if not new.replaces:
            raise ItemExists(new.id)
        carried = (there.version + 1, f"{there.created_at * 1000:.0f}", False)
        item = await here.write(new, msgspec.msgpack.encode(carried))
        await elsewhere.remove(new.id, None, "moved")
        return item

    async def write_many(self, news: Sequence[NewItem]) -> Written:
        if self._only is not None:
            return await self._only.write_many(news)
        return await each(map(self.write, news))

    async def read(self, ids: Sequence[str], context: str | None = None) -> FoundItems:
        where = self._where(context)
        if where is not None:
            return await where.read(ids)
        found = await asyncio.gather(*(items.read(ids) for items in self._everywhere))
        return [newest(candidates) for candidates in zip(*found, strict=True)]

    async def change(self, change: ItemChange) -> Item:
        if change.to_context is not None and self._only is None:
            moved = await self._moved_over(change)
            if moved is not None:
                return moved
        outcome, detail = await self._first(change.context, lambda items: items.change(change))
        if outcome == b"conflict":
            raise VersionConflict("item", change.id, change.expected_version or 0, int(detail))
        if outcome == b"sealed":
            raise ContentSealed(change.id)
        return self._item_or_missing(change.id, detail)

    async def touch(self, id: str, ttl_ms: int | None, context: str | None = None) -> Item:  # noqa: A002
        _, values = await self._first(context, lambda items: items.touch(id, ttl_ms))
        return self._item_or_missing(id, values)

    async def remove(self, id: str, expected_version: int | None, context: str | None = None) -> bool:  # noqa: A002
        outcome, version = await self._first(context, lambda items: items.remove(id, expected_version, "deleted"))
        if outcome == b"conflict":
            raise VersionConflict("item", id, expected_version or 0, int(version))
        return outcome == b"removed"

    async def remove_many(self, ids: Sequence[str]) -> Removed:
        if self._only is not None:
            return await self._only.remove_many(ids)
        return await each(self.remove(id_, None) for id_ in ids)

    def item_of(self, values: Sequence[bytes | None]) -> Item | None:
        """The item whose FIELDS have these values."""
        return self._everywhere[0].item_of(values)

    async def read_listed(self, shard: Shard, ids: Sequence[bytes], now: float) -> tuple[Read, Gone]:
        """Those that an index has, without such as have ended; and of these, the ids of those that are not there."""
        return await self._items[shard.root].read_listed(ids, now)

    async def read_whatever_is_there(self, ids: Sequence[bytes]) -> FoundItems:
        """`read` for ids that others may have chosen; what somebody else put in the place of one is none."""
        found = await asyncio.gather(*(items.read_listed(ids, 0) for items in self._everywhere))
        by_id = [{sent(item.id): item for item in items} for items, _ in found]
        return [newest([items.get(id_) for items in by_id]) for id_ in ids]

    async def list(self, query: Query) -> Page:
        from kizuna.memory.listing import list_items

        return await list_items(self, query)

    # -- inside -------------------------------------------------------------------------------------------

    def _where(self, context: str | None) -> ShardItems | None:
        """Where items of this context are; None if they may be in any shard."""
        return self._only or (None if context in (None, GLOBAL) else self._items[self.roots.of(context or "")])

    async def _first(self, context: str | None, step: Callable[[ShardItems], Awaitable[Outcome]]) -> Outcome:
        where = self._where(context)
        while True:
            outcomes = [await step(where)] if where else await asyncio.gather(*map(step, self._everywhere))
            telling = next((outcome for outcome in outcomes if outcome[0] not in (b"missing", b"held")), None)
            if telling is not None or all(outcome[0] == b"missing" for outcome in outcomes):
                return telling or outcomes[0]
            # It is on its way to another shard, or was, if whoever took it died.
            await asyncio.sleep(HELD_PAUSE_S)

    async def _found_elsewhere(self, here: ShardItems, id_: str) -> ShardItems | None:
        others = [items for items in self._everywhere if items is not here]
        exists = await asyncio.gather(*(self.store.call("EXISTS", items.shard.item(id_)) for items in others))
        return next((items for items, there in zip(others, exists, strict=True) if there), None)

    async def _moved_over(self, change: ItemChange) -> Item | None:
        """Held here, written in the other shard, and then removed here; None if it stays in its shard. Not atomic:
        killed in between, there are two, of which the one with the higher version counts."""
        to = self.items_of(change.to_context or "", change.id)
        source = await self._holder(change)
        item = (await source.read([change.id]))[0]
        if item is None:
            raise ItemMissing(change.id)
        # To the global context it need not go: that is here as well.
        if source is to or change.to_context == GLOBAL:
            return None
        if change.expected_version not in (None, item.version):
            raise VersionConflict("item", change.id, change.expected_version or 0, item.version)
        held = await source.hold(item.id, item.version)
        if held != b"held":
            # Somebody was quicker.
            await asyncio.sleep(HELD_PAUSE_S if held == b"busy" else 0)
            return await self.change(change)
        carried = (item.version + 1, f"{item.created_at * 1000:.0f}", f"{item.expires_at * 1000:.0f}")
        try:
            written = await to.write(_as_new(item, change), msgspec.msgpack.encode(carried))
        except BaseException:
            await source.let_go(item.id)
            raise
        outcome, version = await source.remove(item.id, item.version, "moved")
        if outcome != b"removed":
            # It took longer than it was held: what others made of it stays, and ours does not happen.
            await to.remove(item.id, written.version, "moved")
            if outcome == b"missing":
                raise ItemMissing(change.id)
            raise VersionConflict("item", change.id, item.version, int(version))
        return written

    async def _holder(self, change: ItemChange) -> ShardItems:
        where = self._where(change.context)
        if where is not None:
            return where
        found = await asyncio.gather(*(items.read([change.id]) for items in self._everywhere))
        versions = [0 if item is None else item.version for (item,) in found]
        return self._everywhere[versions.index(max(versions))]

    def _item_or_missing(self, id_: str, values: Any) -> Item:
        item = None if values is None else self._everywhere[0].item_of(values, id_)
        if item is None:
            raise ItemMissing(id_)
        return item


def newest(candidates: Sequence[Item | None]) -> Item | None:
    """The one that counts, should an item be in two shards."""
    there = [item for item in candidates if item is not None]
    return max(there, key=lambda item: item.version, default=None)


def _as_new(item: Item, change: ItemChange) -> NewItem:
    return NewItem(
        id=item.id,
        type=change.type or item.type,
        context=change.to_context or item.context,
        priority=change.priority or item.priority,
        content=change.content or item.raw_content,
        metadata=change.metadata or item.raw_metadata,
        ttl_ms=change.ttl_ms or round(item.ttl_s * 1000),
        more=msgspec.structs.replace(item.more, generation_number=0),
        token=change.token,
        replaces=True,
    )
