"""`k.memory`: what programs remember for a while, and share."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Unpack

import msgspec

from kizuna.errors import ContentSealed, ItemMissing, VersionConflict, WrongValue
from kizuna.memory.care import Care
from kizuna.memory.contexts import Contexts
from kizuna.memory.drafts import Drafts, ItemOptions, check_version, checked_many, new_token, query_of
from kizuna.memory.events import Event, Events, FeedReader, Watching
from kizuna.memory.invalidating import end_dependents_of, raise_generation
from kizuna.memory.item import Item, ItemChange
from kizuna.memory.keepers import FoundItems
from kizuna.memory.keys import CONTEXT, DEPENDENTS, ITEMS_OF_GENERATION, ITEMS_OF_TYPE
from kizuna.memory.policy import check_priority
from kizuna.memory.query import MOST_PER_PAGE, Page
from kizuna.memory.sealing import KeyRing
from kizuna.memory.server_keeper import ServerKeeper
from kizuna.memory.tending import Tending
from kizuna.store.lifetimes import lifetime_ms

if TYPE_CHECKING:
    from kizuna.coordination.background import Background
    from kizuna.memory.backup.fallback import FallbackKeeper
    from kizuna.memory.backup.journal import Conflict
    from kizuna.memory.health import MemoryHealth
    from kizuna.memory.item import Opener
    from kizuna.memory.pressure import Pressure, Relief
    from kizuna.memory.resealing import Resealed
    from kizuna.memory.verifying import Report
    from kizuna.metrics import Measure
    from kizuna.store.client import Store

UNSET: Final = msgspec.UNSET
"""For contents that are to stay as they are: None is one that they can have."""

Created = list[Item]
Conflicts: TypeAlias = "list[Conflict]"

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05


class Memory:
    """Items in contexts, that end when they should and tell others what changed.

    Ids, types and names of contexts may hold what keys may: text without blanks, control characters and any of
    `*?[]{}\\`. Times are the server's. See docs/memory.md.
    """

    def __init__(self, store: Store, background: Background) -> None:
        settings = store.settings
        ring = KeyRing.from_settings(settings)
        root = settings.roots.memory
        opener = None if ring is None else lambda id_, raw: ring.open(root, id_, raw)
        self.store = store
        self.server = ServerKeeper(store, opener)
        self._drafts = Drafts(settings, ring)
        self._feed = FeedReader(self.server, root)
        self.fallback = _fallback(self.server, self._feed, opener) if settings.memory.backup_folder else None
        """What answers while the server is away; None without `memory.backup_folder`."""
        backup = None if self.fallback is None else self.fallback.backup
        self.care = Care(store, self.server.roots, backup, None if self.fallback is None else self.fallback.measures)
        self.keeper = self.care.counted(self.fallback or self.server)
        self._tending = Tending(self.server, background, self.care, self.fallback)
        self.begin = self._tending.begin
        """Begin to tend: to end what is due, and to make room. Everything that writes or listens does so."""

    @cached_property
    def contexts(self) -> Contexts:
        return Contexts(self.keeper, self._drafts, self.begin)

    # -- items --------------------------------------------------------------------------------------------

    async def create(
        self,
        type: str,  # noqa: A002 - as everywhere
        content: Any,
        *,
        id: str | None = None,  # noqa: A002
        **options: Unpack[ItemOptions],
    ) -> Item:
        """Remember something. ItemExists if there is an item of this id.

        It lives for `ttl_s`, within the bounds of its kind; or as long as is usual for its kind, longer for a priority
        above 5, a result that cost much, a state of importance. It ends before that when something changes that it
        depends on, a name or the id of another item, or when its generation is raised. See `ItemOptions`.
        """
        new = self._drafts.item(type, content, id=id, **options)
        # Asked here, and below, for what is done often: it need not wait in order to hear that it has.
        if not self._tending.has_begun:
            await self.begin()
        return await self.keeper.write(new)

    async def put(
        self,
        id: str,  # noqa: A002
        type: str,  # noqa: A002
        content: Any,
        **options: Unpack[ItemOptions],
    ) -> Item:
        """`create`; but an item of this id is replaced, whole. Its version goes on, and it stays as old as it is."""
        new = self._drafts.item(type, content, id=id, replaces=True, **options)
        if not self._tending.has_begun:
            await self.begin()
        return await self.keeper.write(new)

    async def get(self, id: str, *, context: str | None = None) -> Item | None:  # noqa: A002
        """None if there is none, or it has ended. `context`, if it is known, spares a search over the shards."""
        return (await self.keeper.read((id,), context))[0]

    async def get_many(self, ids: Iterable[str], *, context: str | None = None) -> FoundItems:
        """In the order of the ids."""
        return await self.keeper.read(tuple(checked_many("ids", ids, "ids")), context)

    async def update(
        self,
        id: str,  # noqa: A002
        *,
        content: Any = UNSET,
        type: str | None = None,  # noqa: A002
        priority: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        ttl_s: float | None = None,
        expected_version: int | None = None,
        context: str | None = None,
        sealed: bool | None = None,
    ) -> Item:
        """What is not said stays. ItemMissing, or VersionConflict if it is not the expected one.

        A content that was sealed is sealed again, unless `sealed` says otherwise.
        """
        if sealed is not None and content is UNSET:
            raise WrongValue("sealed", repr(sealed), "the content as well: it is sealed, or not, when it is written")
        change = ItemChange(
            id=id,
            token=new_token(),
            context=context,
            expected_version=expected_version,
            content=None if content is UNSET else self._drafts.content(id, content, sealed),
            metadata=None if metadata is None else self._drafts.metadata(metadata),
            type=type,
            priority=priority,
            ttl_ms=None if ttl_s is None else lifetime_ms(ttl_s),
            unseals=sealed is False,
        )
        try:
            return await self._changed(change)
        except ContentSealed:
            if not self._drafts.may_seal:
                raise
        return await self._changed(msgspec.structs.replace(change, content=self._drafts.content(id, content, True)))

    async def change(
        self,
        id: str,  # noqa: A002
        function: Callable[[Any], Any],
        *,
        context: str | None = None,
        within_s: float = 30.0,
    ) -> Item:
        """Give the content to the function, and write what it returns; again, if somebody else was quicker, with what
        the content is then. VersionConflict if that goes on for so long; ItemMissing."""
        deadline = asyncio.get_running_loop().time() + within_s
        pause_s = _FIRST_PAUSE_S
        while True:
            item = await self.get(id, context=context)
            if item is None:
                raise ItemMissing(id)
            content = function(item.content)
            if inspect.isawaitable(content):
                content = await content
            raw = self._drafts.content(id, content, item.is_sealed or None)
            change = ItemChange(
                id=id, token=new_token(), context=item.context, expected_version=item.version, content=raw
            )
            try:
                return await self._changed(change)
            except (VersionConflict, ItemMissing):
                # Missing where it was: it may have been moved, and is looked for again.
                if asyncio.get_running_loop().time() > deadline:
                    raise
            # Those who collided should not meet again.
            await asyncio.sleep(pause_s * random.random())  # noqa: S311 - no secret
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def touch(self, id: str, *, ttl_s: float | None = None, context: str | None = None) -> Item:  # noqa: A002
        """It lives at least as long again as it was given, or this long from now. ItemMissing."""
        if not self._tending.has_begun:
            await self.begin()
        return await self.keeper.touch(id, None if ttl_s is None else lifetime_ms(ttl_s), context)

    async def delete(
        self,
        id: str,  # noqa: A002
        *,
        expected_version: int | None = None,
        context: str | None = None,
    ) -> bool:
        """False if there was none. VersionConflict if it is not the expected one."""
        check_version(expected_version)
        if not self._tending.has_begun:
            await self.begin()
        return await self.keeper.remove(id, expected_version, context)

    async def create_many(self, items: Iterable[Mapping[str, Any]]) -> Created:
        """`create` for each, with these arguments, together. All are checked before the first is written; if one cannot
        be written then, the others are, and an ExceptionGroup says what went wrong."""
        news = [self._drafts.item_of(arguments) for arguments in checked_many("items", items, "what `create` takes")]
        await self.begin()
        return _all_or_why("not all items were created", await self.keeper.write_many(news))

    async def delete_many(self, ids: Iterable[str]) -> int:
        """How many of them there were."""
        which = tuple(checked_many("ids", ids, "ids"))
        await self.begin()
        return sum(_all_or_why("not all items were deleted", await self.keeper.remove_many(which)))

    async def touch_many(self, ids: Iterable[str], *, ttl_s: float | None = None) -> FoundItems:
        """In the order of the ids; None in the place of each that was not there."""
        which, ttl_ms = checked_many("ids", ids, "ids"), None if ttl_s is None else lifetime_ms(ttl_s)
        await self.begin()
        touching = (_unless_missing(self.keeper.touch(id_, ttl_ms)) for id_ in which)
        return _all_or_why("not all items were touched", await asyncio.gather(*touching, return_exceptions=True))

    async def copy(self, id: str, to_context: str, *, new_id: str | None = None) -> Item:  # noqa: A002
        """Another one like it, with a life of its own, as long as this one was given. ItemMissing."""
        item = await self.get(id)
        if item is None:
            raise ItemMissing(id)
        more = item.more
        return await self.create(
            item.type,
            item.content,
            id=new_id,
            context=to_context,
            priority=item.priority,
            ttl_s=item.ttl_s,
            metadata=item.metadata,
            kind=more.kind,
            cost_s=more.cost_s,
            importance=more.importance,
            depends_on=more.depends_on,
            generation=more.generation,
            sealed=item.is_sealed,
        )

    async def move(
        self,
        id: str,  # noqa: A002
        to_context: str,
        *,
        expected_version: int | None = None,
        context: str | None = None,
    ) -> Item:
        """It is the same item, in another context. ItemMissing, VersionConflict. `context` is where it is now."""
        self._drafts.check_name(CONTEXT, "context", to_context)
        change = ItemChange(
            id=id, token=new_token(), context=context, to_context=to_context, expected_version=expected_version
        )
        return await self._changed(change)

    # -- finding ------------------------------------------------------------------------------------------

    async def list(
        self,
        *,
        type: str | None = None,  # noqa: A002
        context: str | None = None,
        priority: int | tuple[int, int] | None = None,
        ends_after: float | None = None,
        ends_before: float | None = None,
        text: str | None = None,
        newest_first: bool = False,
        limit: int = 50,
        cursor: str = "",
    ) -> Page:
        """Items that have all of this, in the order in which they were created; with the cursor of a page, the next.
        Whatever is created or ends meanwhile, nothing comes twice, and nothing is left out that is there all the time.

        `priority` is one, or the lowest and the highest; `text` is somewhere in the content. A page may have less than
        asked for, and none at all, while there are more: only an empty cursor says that it was the last.
        """
        if type is not None:
            self._drafts.check_name(ITEMS_OF_TYPE, "type", type)
        if context is not None:
            self._drafts.check_name(CONTEXT, "context", context)
        query = query_of(
            type=type,
            context=context,
            priority=priority,
            ends_after=ends_after,
            ends_before=ends_before,
            text=text,
            newest_first=newest_first,
            limit=limit,
            cursor=cursor,
        )
        if not self._tending.has_begun:
            # What ended while nobody was there is in the way of whoever lists.
            await self.begin()
        return await self.keeper.list(query)

    async def all(self, **having: Any) -> AsyncIterator[Item]:
        """What `list` finds, page after page; takes what it takes."""
        cursor = having.pop("cursor", "")
        having.setdefault("limit", MOST_PER_PAGE // 4)
        while True:
            page = await self.list(**having, cursor=cursor)
            for item in page.items:
                yield item
            cursor = page.cursor
            if not cursor:
                return

    async def count(self, *, type: str | None = None, context: str | None = None) -> int:  # noqa: A002
        """About how many: of a type, of a context, of both, or of all. What has just ended may be among them."""
        from kizuna.memory.counting import count_items

        return await count_items(self.store, type=type, context=context)

    # -- ending before their time -------------------------------------------------------------------------

    async def changed(self, *names: str) -> int:
        """Something that items may depend on has changed: they end now, and whatever depends on them. Returns how many
        this call has ended; of hundreds that depend on each other, the background ends the rest a moment later."""
        for name in names:
            self._drafts.check_name(DEPENDENTS, "name", name)
        await self.begin()
        return await end_dependents_of(self.server, names)

    async def raise_generation(self, generation: str) -> int:
        """All items of this generation that there are end now, however many. Returns its new number."""
        self._drafts.check_name(ITEMS_OF_GENERATION, "generation", generation)
        await self.begin()
        return await raise_generation(self.server, generation, new_token())

    # -- what happens -------------------------------------------------------------------------------------

    def watch(
        self,
        *kinds: str,
        context: str | None = None,
        type: str | None = None,  # noqa: A002
    ) -> AbstractAsyncContextManager[Watching]:
        """Hear of events as they happen, of these kinds or of all; see `Watching`. What happens while nobody listens is
        not told: `follow` is for those who must not miss any."""
        if context is not None:
            self._drafts.check_name(CONTEXT, "context", context)
        if type is not None:
            self._drafts.check_name(ITEMS_OF_TYPE, "type", type)
        return self._watching(kinds, context, type)

    async def events_since(self, cursor: str, limit: int = 100) -> Events:
        """From the durable feed, the oldest first. `0` is the oldest there is, `$` none of those until now. EventsGone
        if some are no longer there."""
        return await self._feed.events_since(cursor, limit)

    async def now_cursor(self) -> str:
        """After everything that has happened until now."""
        return await self._feed.now_cursor()

    async def follow(self, cursor: str) -> AsyncIterator[Event]:
        """`events_since`, without an end: waits for more, also while the server is away."""
        await self.begin()
        async for event in self._feed.follow(cursor):
            yield event

    # -- care ---------------------------------------------------------------------------------------------

    async def sweep(self) -> int:
        """End what is due now, and take in what others wrote: what the background does all the time. How many ended."""
        return await self._tending.sweep()

    async def end_due(self) -> None:
        """End what is due now, and go on with what was begun until it is done; for programs that end soon."""
        await self._tending.end_due()

    async def verify(self, *, repair: bool = False) -> Report:
        """Whether everything is where it should be, all indexes exact; and with `repair`, see to it."""
        return await self.care.verify(repair)

    async def pressure(self) -> Pressure:
        """How full the server is, and what is done about it."""
        return await self.care.pressure()

    async def relieve(self) -> Relief:
        """Make room now, if that is needed: what the background does from time to time."""
        return await self.care.relieve()

    async def reseal(self) -> Resealed:
        """Seal everything that is sealed with an older key again, with the first. CannotSeal if there is none."""
        from kizuna.memory.resealing import reseal

        return await reseal(self)

    async def health(self) -> MemoryHealth:
        """Never raises an error of ours: that the server cannot be asked is the answer."""
        return await self.care.health()

    def measures(self) -> Iterable[Measure]:
        """For `Metrics`."""
        return self.care.measures()

    async def conflicts(self) -> Conflicts:
        """What was written while the server was away, and could not happen there; the oldest first. See
        docs/memory-backup.md."""
        return [] if self.fallback is None else await self.fallback.backup.conflicts()

    async def aclose(self) -> None:
        self._tending.end()
        if self.fallback is not None:
            await self.fallback.aclose()

    # -- inside -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _watching(self, kinds: Sequence[str], context: str | None, type_: str | None) -> AsyncIterator[Watching]:
        # Whoever waits for the end of something sees to it that it is told.
        await self.begin()
        async with self._feed.watch(kinds, context, type_) as watching:
            yield watching

    async def _changed(self, change: ItemChange) -> Item:
        check_version(change.expected_version)
        if change.type is not None:
            self._drafts.check_name(ITEMS_OF_TYPE, "type", change.type)
        if change.priority is not None:
            check_priority(change.priority)
        if not self._tending.has_begun:
            await self.begin()
        return await self.keeper.change(change)


def _fallback(server: ServerKeeper, feed: FeedReader, opener: Opener | None) -> FallbackKeeper:
    # Most have no copy, and need not load what it is made of.
    from kizuna.memory.backup.backup import Backup
    from kizuna.memory.backup.fallback import FallbackKeeper

    return FallbackKeeper(server, Backup(server.store, server, feed, opener), server.store.settings)


async def _unless_missing(touching: Awaitable[Item]) -> Item | None:
    try:
        return await touching
    except ItemMissing:
        return None


def _all_or_why(what: str, outcomes: list[Any]) -> list[Any]:
    errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if errors:
        raise ExceptionGroup(what, errors)
    return outcomes


__all__ = ["UNSET", "Memory"]
