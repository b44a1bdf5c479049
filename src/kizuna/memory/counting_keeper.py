"""A keeper that counts what another one is asked, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kizuna.memory.counts import Counts

if TYPE_CHECKING:
    from kizuna.memory.context import AtEnd, Context, ContextChange, ContextQuery, NewContext
    from kizuna.memory.item import Item, ItemChange, NewItem
    from kizuna.memory.keepers import FoundContexts, FoundItems, Keeper, Removed, Written
    from kizuna.memory.query import ContextPage, Page, Query

T = TypeVar("T")

OPERATIONS = (
    "create", "create_many", "put", "get", "update", "move", "touch", "delete", "delete_many", "list",
    "create_context", "get_context", "update_context", "touch_context", "delete_context", "list_contexts",
)  # fmt: skip


class CountingKeeper:
    """Implements `Keeper`."""

    def __init__(self, keeper: Keeper, counts: Counts) -> None:
        self._keeper, self._counts = keeper, counts
        self._tallies = {operation: counts.tally(operation) for operation in OPERATIONS}

    async def write(self, new: NewItem) -> Item:
        return await self._counted("put" if new.replaces else "create", self._keeper.write(new))

    async def write_many(self, news: Sequence[NewItem]) -> Written:
        written = await self._counted("create_many", self._keeper.write_many(news))
        self._counts.count_each("create", written)
        return written

    async def read(self, ids: Sequence[str], context: str | None = None) -> FoundItems:
        items = await self._counted("get", self._keeper.read(ids, context))
        misses = items.count(None)
        self._counts.hits += len(items) - misses
        self._counts.misses += misses
        return items

    async def change(self, change: ItemChange) -> Item:
        return await self._counted("update" if change.to_context is None else "move", self._keeper.change(change))

    async def touch(self, id: str, ttl_ms: int | None, context: str | None = None) -> Item:  # noqa: A002 - as everywhere
        return await self._counted("touch", self._keeper.touch(id, ttl_ms, context))

    async def remove(self, id: str, expected_version: int | None, context: str | None = None) -> bool:  # noqa: A002
        return await self._counted("delete", self._keeper.remove(id, expected_version, context))

    async def remove_many(self, ids: Sequence[str]) -> Removed:
        removed = await self._counted("delete_many", self._keeper.remove_many(ids))
        self._counts.count_each("delete", removed)
        return removed

    async def list(self, query: Query) -> Page:
        return await self._counted("list", self._keeper.list(query))

    async def write_context(self, new: NewContext) -> Context:
        return await self._counted("create_context", self._keeper.write_context(new))

    async def read_contexts(self, ids: Sequence[str]) -> FoundContexts:
        return await self._counted("get_context", self._keeper.read_contexts(ids))

    async def change_context(self, change: ContextChange) -> Context:
        return await self._counted("update_context", self._keeper.change_context(change))

    async def touch_context(self, id: str, ttl_ms: int | None) -> Context:  # noqa: A002
        return await self._counted("touch_context", self._keeper.touch_context(id, ttl_ms))

    async def remove_context(self, id: str, items: AtEnd | None) -> bool:  # noqa: A002
        return await self._counted("delete_context", self._keeper.remove_context(id, items))

    async def list_contexts(self, query: ContextQuery) -> ContextPage:
        return await self._counted("list_contexts", self._keeper.list_contexts(query))

    async def _counted(self, operation: str, asked: Awaitable[T]) -> T:
        tally, began = self._tallies[operation], time.perf_counter()
        try:
            answer = await asked
        except BaseException as error:
            tally.fail(error, time.perf_counter() - began)
            raise
        tally.succeed(time.perf_counter() - began)
        return answer
