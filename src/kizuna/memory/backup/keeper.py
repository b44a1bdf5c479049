"""The copy as a keeper, while the server is away. What it gives is marked as coming from it."""

from __future__ import annotations

from collections.abc import Sequence

from kizuna.memory.backup import contexts, items
from kizuna.memory.backup.items import Doubt, Rules
from kizuna.memory.backup.listing import list_items
from kizuna.memory.backup.thread import CopyThread, T, Work
from kizuna.memory.context import AtEnd, Context, ContextChange, ContextQuery, NewContext
from kizuna.memory.item import Item, ItemChange, NewItem
from kizuna.memory.keepers import FoundContexts, FoundItems, Removed, Written, each
from kizuna.memory.query import ContextPage, Page, Query


class BackupKeeper:
    """Implements `Keeper`: same order, same filters, same cursors and same refusals as the server's. What it has
    acknowledged is on the disk, in the journal, and happens on the server later.

    `doubt` is for what the server was asked before, and may have done. Everything raises BackupDamaged or
    BackupNotWritten if the file does not work, and writes BackupFull if it has no room.
    """

    def __init__(self, thread: CopyThread, rules: Rules) -> None:
        self._thread, self._rules = thread, rules

    async def write(self, new: NewItem, doubt: Doubt | None = None) -> Item:
        return await self._change(lambda file: items.write(file, self._rules, new, doubt))

    async def write_many(self, news: Sequence[NewItem], doubt: Doubt | None = None) -> Written:
        return await each(self.write(new, doubt) for new in news)

    async def read(self, ids: Sequence[str], context: str | None = None) -> FoundItems:
        return await self._read(lambda file: items.read(file, self._rules, ids))

    async def change(self, change: ItemChange, doubt: Doubt | None = None) -> Item:
        return await self._change(lambda file: items.change(file, self._rules, change, doubt))

    async def touch(self, id: str, ttl_ms: int | None, context: str | None = None) -> Item:  # noqa: A002
        return await self._change(lambda file: items.touch(file, self._rules, id, ttl_ms))

    async def remove(
        self,
        id: str,  # noqa: A002 - as everywhere
        expected_version: int | None,
        context: str | None = None,
        doubt: Doubt | None = None,
    ) -> bool:
        return await self._change(lambda file: items.remove(file, self._rules, id, expected_version, doubt))

    async def remove_many(self, ids: Sequence[str], doubt: Doubt | None = None) -> Removed:
        return await each(self.remove(id_, None, None, doubt) for id_ in ids)

    async def list(self, query: Query) -> Page:
        return await self._read(lambda file: list_items(file, self._rules, query))

    async def write_context(self, new: NewContext, doubt: Doubt | None = None) -> Context:
        return await self._change(lambda file: contexts.write(file, self._rules, new, doubt))

    async def read_contexts(self, ids: Sequence[str]) -> FoundContexts:
        return await self._read(lambda file: contexts.read(file, ids))

    async def change_context(self, change: ContextChange, doubt: Doubt | None = None) -> Context:
        return await self._change(lambda file: contexts.change(file, self._rules, change, doubt))

    async def touch_context(self, id: str, ttl_ms: int | None) -> Context:  # noqa: A002
        return await self._change(lambda file: contexts.touch(file, self._rules, id, ttl_ms))

    async def remove_context(self, id: str, items: AtEnd | None, doubt: Doubt | None = None) -> bool:  # noqa: A002
        return await self._change(lambda file: contexts.remove(file, id, items, doubt))

    async def list_contexts(self, query: ContextQuery) -> ContextPage:
        return await self._read(lambda file: contexts.list_(file, query))

    async def _read(self, work: Work[T]) -> T:
        return await self._thread.do(work, "read")

    async def _change(self, work: Work[T]) -> T:
        return await self._thread.do(work, "change", durably=True)
