"""The server as long as it can be reached, and else the copy. While it is away, every call is answered by the copy at
once; see `presence` for how that begins and ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from kizuna.errors import (
    ContextExists,
    ContextMissing,
    ItemExists,
    ItemMissing,
    KizunaError,
    StoreError,
    Unreachable,
    VersionConflict,
)
from kizuna.memory.backup import copying
from kizuna.memory.backup.backup import Backup
from kizuna.memory.backup.copying import ContextCopy, ContextEnded, ItemCopy, ItemEnded
from kizuna.memory.backup.items import Doubt
from kizuna.memory.backup.presence import PROBE_TIMEOUT_S, Presence
from kizuna.memory.backup.silence import is_away
from kizuna.memory.context import AtEnd, Context, ContextChange, ContextQuery, NewContext
from kizuna.memory.events import Event
from kizuna.memory.item import Item, ItemChange, NewItem
from kizuna.memory.keepers import FoundContexts, FoundItems, Keeper, Removed, Written, each
from kizuna.memory.query import ContextPage, Page, Query
from kizuna.metrics import Measure
from kizuna.settings import Settings

log = logging.getLogger("kizuna.memory")

T = TypeVar("T")
OnServer = Callable[[], Awaitable[T]]
OnBackup = Callable[[Doubt | None], Awaitable[T]]

_REFUSALS = (ItemExists, ItemMissing, ContextExists, ContextMissing, VersionConflict)
# Of how many is known what was last copied of them, so that not every read is written.
_MOST_KNOWN = 10_000
# Reasons of changes that come with a new version.
_TOLD_BY_VERSION = frozenset({"", "replaced", "moved"})


class FallbackKeeper:
    """Implements `Keeper`. Opened by its first call, closed by `aclose`.

    Only a server that is not there is replaced by the copy: what it says, also that it has no such item, is true. If
    the copy cannot be opened, that is logged, and the server answers alone.
    """

    def __init__(self, server: Keeper, backup: Backup, settings: Settings) -> None:
        self.backup = backup
        self.problem: KizunaError | None = None
        """Why there is no copy; None if there is one."""
        self._server, self._copy = server, backup.keeper
        self._presence = Presence(backup, settings)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._tasks: list[asyncio.Task[None]] = []
        self._known: dict[str, tuple[float, int, float]] = {}
        """What was last copied of each by this process: when it was created, its version, and when it ends."""
        backup.following.is_known = self._has_copied

    @property
    def is_away(self) -> bool:
        """Whether the copy answers."""
        return self._presence.is_away

    # -- life ---------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Have the copy, catch up, and begin to follow. Never fails: without a copy, the server answers alone."""
        async with self._opening:
            if self._is_open:
                return
            try:
                await self.backup.open()
                with suppress(StoreError):
                    await self.backup.ask_time(PROBE_TIMEOUT_S)
                    # Whoever wrote what is journalled has died. It happens before anything else does.
                    await self.backup.replay()
                if await self.backup.pending():
                    self._presence.go_away(Unreachable("writes are journalled", "the copy", "they are being replayed"))
            except KizunaError as error:
                # Not `exception`: the error says it all.
                log.error("memory has no copy", extra={"file": str(self.backup.path), "error": str(error)})  # noqa: TRY400
                self.problem = error
            else:
                parts = (self._presence.run(), self.backup.following.run())
                self._tasks = [asyncio.create_task(part, name="kizuna memory backup") for part in parts]
            self._is_open = True

    async def aclose(self) -> None:
        """What is journalled stays so, for the next one who opens the file. Harmless when repeated."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._presence.aclose()
        await self.backup.aclose()

    async def unless_away(self, begin: Callable[[], Awaitable[T]]) -> T | None:
        """What it is, or None if the server is away: for what can as well begin later."""
        if self.is_away:
            return None
        try:
            async with asyncio.timeout(self._presence.patience_s):
                return await begin()
        except TimeoutError:
            return None
        except StoreError as error:
            if is_away(error):
                return None
            raise

    def measures(self) -> Iterable[Measure]:
        return self.backup.measures(works=self.problem is None, is_away=self.is_away)

    # -- items --------------------------------------------------------------------------------------------

    async def write(self, new: NewItem) -> Item:
        item = await self._ask(lambda: self._server.write(new), lambda doubt: self._copy.write(new, doubt))
        # Replaced or not: of version 1, it is the first of its id, or another than the one before.
        self._keep(item, is_new=item.version == 1)
        return item

    async def write_many(self, news: Sequence[NewItem]) -> Written:
        written = await self._ask(
            lambda: _or_away(self._server.write_many(news)), lambda doubt: self._copy.write_many(news, doubt)
        )
        self._keep(*(item for item in written if isinstance(item, Item)), is_new=True)
        return written

    async def read(self, ids: Sequence[str], context: str | None = None) -> FoundItems:
        items = await self._ask(lambda: self._server.read(ids, context), lambda _: self._copy.read(ids, context))
        self._keep(*items)
        return items

    async def change(self, change: ItemChange) -> Item:
        on_copy: OnBackup[Item] = lambda doubt: self._copy.change(change, doubt)  # noqa: E731
        item = await self._ask(lambda: self._server.change(change), self._if_complete(on_copy))
        self._keep(item)
        return item

    async def touch(self, id: str, ttl_ms: int | None, context: str | None = None) -> Item:  # noqa: A002
        on_copy: OnBackup[Item] = lambda _: self._copy.touch(id, ttl_ms, context)  # noqa: E731
        item = await self._ask(lambda: self._server.touch(id, ttl_ms, context), self._if_complete(on_copy))
        self._keep(item)
        return item

    async def remove(self, id: str, expected_version: int | None, context: str | None = None) -> bool:  # noqa: A002
        async def on_server() -> bool:
            removed = await self._server.remove(id, expected_version, context)
            self._forget(id)
            return removed

        return await self._ask(on_server, lambda doubt: self._remove_here(id, expected_version, doubt))

    async def remove_many(self, ids: Sequence[str]) -> Removed:
        async def on_server() -> Removed:
            removed = await _or_away(self._server.remove_many(ids))
            gone = [id_ for id_, outcome in zip(ids, removed, strict=True) if not isinstance(outcome, KizunaError)]
            self._forget(*gone)
            return removed

        return await self._ask(on_server, lambda doubt: each(self._remove_here(id_, None, doubt) for id_ in ids))

    async def _remove_here(self, id_: str, expected_version: int | None, doubt: Doubt | None) -> bool:
        removed = await self._copy.remove(id_, expected_version, doubt=doubt)
        if not removed and not await self.backup.thread.do(copying.is_complete):
            raise self._presence.why()
        return removed

    async def list(self, query: Query) -> Page:
        page = await self._ask(lambda: self._server.list(query), lambda _: self._copy.list(query))
        self._keep(*page.items)
        return page

    # -- contexts -----------------------------------------------------------------------------------------

    async def write_context(self, new: NewContext) -> Context:
        context = await self._ask(
            lambda: self._server.write_context(new), lambda doubt: self._copy.write_context(new, doubt)
        )
        self._keep_contexts(context, is_new=True)
        return context

    async def read_contexts(self, ids: Sequence[str]) -> FoundContexts:
        contexts = await self._ask(lambda: self._server.read_contexts(ids), lambda _: self._copy.read_contexts(ids))
        self._keep_contexts(*contexts)
        return contexts

    async def change_context(self, change: ContextChange) -> Context:
        on_copy: OnBackup[Context] = lambda doubt: self._copy.change_context(change, doubt)  # noqa: E731
        context = await self._ask(lambda: self._server.change_context(change), self._if_complete(on_copy))
        self._keep_contexts(context)
        return context

    async def touch_context(self, id: str, ttl_ms: int | None) -> Context:  # noqa: A002
        on_copy: OnBackup[Context] = lambda _: self._copy.touch_context(id, ttl_ms)  # noqa: E731
        context = await self._ask(lambda: self._server.touch_context(id, ttl_ms), self._if_complete(on_copy))
        self._keep_contexts(context)
        return context

    async def remove_context(self, id: str, items: AtEnd | None) -> bool:  # noqa: A002
        async def on_server() -> bool:
            removed = await self._server.remove_context(id, items)
            self._put(ContextEnded(id))
            return removed

        return await self._ask(on_server, lambda doubt: self._copy.remove_context(id, items, doubt))

    async def list_contexts(self, query: ContextQuery) -> ContextPage:
        page = await self._ask(lambda: self._server.list_contexts(query), lambda _: self._copy.list_contexts(query))
        self._keep_contexts(*page.contexts)
        return page

    # -- who answers --------------------------------------------------------------------------------------

    async def _ask(self, on_server: OnServer[T], on_backup: OnBackup[T]) -> T:
        if not self._is_open:
            await self.open()
        if self.problem is not None:
            return await on_server()
        presence, doubt = self._presence, None
        if not presence.may_ask.is_set():
            await presence.may_ask.wait()
        if not presence.is_away:
            answer, doubt = await presence.asked(on_server)
            if not isinstance(answer, StoreError):
                return answer
        try:
            return await on_backup(doubt)
        except _REFUSALS as refusal:
            if doubt is None:
                raise
            # The copy does not take it; but the server may have taken it, or do so yet.
            raise self._presence.unknown() from refusal

    def _if_complete(self, on_backup: OnBackup[T]) -> OnBackup[T]:
        """That something is missing is only known if the copy has everything. Else, only the server knows."""

        async def on_complete(doubt: Doubt | None) -> T:
            try:
                return await on_backup(doubt)
            except (ItemMissing, ContextMissing):
                if doubt is None and await self.backup.thread.do(copying.is_complete):
                    raise
                raise self._presence.why() from None

        return on_complete

    # -- copies -------------------------------------------------------------------------------------------

    def _keep(self, *items: Item | None, is_new: bool = False) -> None:
        fresh = [item for item in items if item is not None and not item.from_backup and not self._is_known(item)]
        self._put(*(ItemCopy(item, is_new) for item in fresh))

    def _has_copied(self, event: Event) -> bool:
        """Whether this is our own doing. Of what changes the end and not the version, nobody can tell."""
        known = self._known.get(event.id)
        if known is None or event.kind not in ("item:created", "item:updated") or event.reason not in _TOLD_BY_VERSION:
            return False
        return known[0] <= event.at and known[1] >= event.version > 0

    def _forget(self, *ids: str) -> None:
        for id_ in ids:
            self._known.pop(id_, None)
        self._put(*map(ItemEnded, ids))

    def _is_known(self, item: Item) -> bool:
        """Whether it was copied just as it is. If the copy was lost, the feed brings it."""
        state, known = (item.created_at, item.version, item.expires_at), self._known
        if known.get(item.id) == state:
            return True
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known[item.id] = state
        return False

    def _keep_contexts(self, *contexts: Context | None, is_new: bool = False) -> None:
        self._put(*(ContextCopy(one, is_new) for one in contexts if one is not None and not one.from_backup))

    def _put(self, *copies: copying.Copy) -> None:
        if copies and self.problem is None:
            self.backup.thread.copy(*copies)


async def _or_away(asking: Awaitable[list[T | KizunaError]]) -> list[T | KizunaError]:
    """What became of each; or, if nobody was there to take some of them, that. Those that were taken are known by their
    tokens when all are repeated."""
    outcomes = await asking
    for outcome in outcomes:
        if isinstance(outcome, StoreError) and is_away(outcome):
            raise outcome
    return outcomes
