"""Keeps the copy complete: what others change is told by the feed, read from the server, and copied. One process for
each file does this; when it ends, another one takes over, from where that was."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kizuna.errors import (
    BackupDamaged,
    BackupNotWritten,
    EventsGone,
    KizunaError,
    OutcomeUnknown,
    Unreachable,
    WrongValue,
)
from kizuna.memory.backup import copying
from kizuna.memory.backup.copying import ContextCopy, ContextEnded, Copy, ItemCopy, ItemEnded
from kizuna.memory.backup.locks import try_take
from kizuna.memory.backup.rows import ms
from kizuna.memory.backup.thread import BYTES_AT_ONCE, CopyThread
from kizuna.memory.context import ContextQuery
from kizuna.memory.events import Event, FeedReader, Watching
from kizuna.memory.keys import CONTEXT
from kizuna.memory.query import Query
from kizuna.memory.raw_names import sent
from kizuna.store.link import copy_of

if TYPE_CHECKING:
    from kizuna.memory.server_keeper import ServerKeeper

log = logging.getLogger("kizuna.memory")

_EVENTS_AT_ONCE = 500
_PER_PAGE = 500
# The last resort: whatever is not heard of is seen after this time.
_LOOK_EVERY_S = 5.0
_TRY_AGAIN_S = 0.2
# After the file took nothing, or a pass had a gap: what causes that may last, and a pass costs the server something.
_NEXT_PASS_S = 1.0
_GATHER_S = 0.05
# How soon another process takes over from one that has ended.
_TAKE_OVER_S = 0.5


class Following:
    def __init__(self, server: ServerKeeper, feed: FeedReader, thread: CopyThread, lock: Path) -> None:
        self.is_following = False
        """Whether it is this process that does it."""
        self.passes = 0
        """How often everything was looked at."""
        self.is_known: Callable[[Event], bool] = lambda _: False
        """Whether this process has copied it already, when it did it."""
        self._server, self._feed, self._thread, self._lock = server, feed, thread, lock
        self._complained_of = ""

    async def run(self) -> None:
        """Until cancelled: wait until it is our turn, and follow."""
        # Nobody can be told when another process lets go of it.
        while (lock := try_take(self._lock)) is None:  # noqa: ASYNC110
            await asyncio.sleep(_TAKE_OVER_S)
        try:
            self.is_following = True
            while True:
                await self._try()
        finally:
            self.is_following = False
            os.close(lock)

    async def _try(self) -> None:
        try:
            # Heard from before the first look on: nothing happens in between.
            async with self._feed.watch(()) as heard:
                await self._follow(heard)
        except (Unreachable, OutcomeUnknown):
            # Away: the keeper says so.
            pass
        except (BackupDamaged, BackupNotWritten) as error:
            self._complain(str(error))
            await asyncio.sleep(_NEXT_PASS_S)
        except KizunaError as error:
            self._complain(str(error))
        except Exception:
            log.exception("the feed is not followed")
        await asyncio.sleep(_TRY_AGAIN_S)

    def _complain(self, problem: str) -> None:
        """Once: what it is, it stays for a while, and is tried again all the time."""
        if problem != self._complained_of:
            log.warning("the feed is not followed", extra={"error": problem})
        self._complained_of = problem

    async def _follow(self, heard: Watching) -> None:
        while True:
            try:
                is_behind = await self._catch_up()
            except (EventsGone, WrongValue) as error:
                # WrongValue: the cursor is of a memory with other shards.
                log.info("the copy is made anew", extra={"file": str(self._thread.path), "reason": str(error)})
                await self._thread.do(copying.forget_pass, "note")
                continue
            if not is_behind:
                await _until_heard(heard)

    async def _catch_up(self) -> bool:
        """Copy the next changes, or everything if it is not known from where on. Whether there may be more."""
        cursor = await self._thread.do(lambda file: str(file.fact("cursor", "")))
        if not cursor:
            if not await self._copy_all():
                await asyncio.sleep(_NEXT_PASS_S)
            return True
        found = await self._feed.events_since(cursor, _EVENTS_AT_ONCE)
        if found.events:
            await self._put([copy async for copy in self._copies(found.events)])
            # After the copies, in their order: were we killed in between, they are read again.
            if not await self._thread.do(lambda file: copying.note_cursor(file, found.cursor), "note"):
                return True
        return len(found.events) == _EVENTS_AT_ONCE

    async def _copies(self, events: Sequence[Event]) -> AsyncIterator[Copy]:
        """Of each, only the last event counts: the server is asked for what is there now."""
        last = {(event.kind.startswith("ctx:"), event.id): event for event in events}
        last = {key: event for key, event in last.items() if not self.is_known(event)}
        there = [key for key, event in last.items() if event.kind.endswith((":created", ":updated"))]
        for (is_context, id_), event in last.items():
            if (is_context, id_) not in there:
                yield ContextEnded(id_, ms(event.at)) if is_context else ItemEnded(id_, ms(event.at))
        ids = [id_ for is_context, id_ in there if not is_context]
        items = await self._server.read_whatever_is_there([sent(id_) for id_ in ids]) if ids else ()
        for id_, item in zip(ids, items, strict=True):
            # Ended meanwhile: the next events will say so.
            yield ItemEnded(id_, ms(last[False, id_].at)) if item is None else ItemCopy(item)
        # Those whose ids no key of ours can have are not listed, and so not copied.
        ids = [id_ for is_context, id_ in there if is_context and CONTEXT.takes(context=id_)]
        contexts = await self._server.read_contexts(ids, whatever_is_there=True)
        for id_, context in zip(ids, contexts, strict=True):
            yield ContextEnded(id_, ms(last[True, id_].at)) if context is None else ContextCopy(context)

    async def _copy_all(self) -> bool:
        """One pass over all that the server has. What happens meanwhile is told by the events after the cursor.
        False if something was lost on the way."""
        cursor = await self._feed.now_cursor()
        await self._thread.do(copying.begin_pass, "note")
        query = ContextQuery(limit=_PER_PAGE)
        while True:
            contexts = await self._server.list_contexts(query)
            await self._put([ContextCopy(context) for context in contexts.contexts])
            if not contexts.cursor:
                break
            query = ContextQuery(limit=_PER_PAGE, cursor=contexts.cursor)
        await self._copy_all_items()
        is_whole = await self._thread.do(lambda file: copying.end_pass(file, cursor), "note")
        self.passes += 1
        return is_whole

    async def _copy_all_items(self) -> None:
        query = Query(limit=_PER_PAGE)
        while True:
            page = await self._server.list(query)
            await self._put([ItemCopy(item) for item in page.items])
            if not page.cursor:
                return
            query = Query(limit=_PER_PAGE, cursor=page.cursor)

    async def _put(self, copies: Sequence[Copy]) -> None:
        """Waited for, part by part: a pass must not drive out what else waits to be copied, nor itself."""
        for part in _parts(copies):
            self._thread.copy(*part)
            await self._thread.do(lambda _: None)
            if (problem := self._thread.problem) is not None:
                raise copy_of(problem)


def _parts(copies: Sequence[Copy]) -> Iterator[list[Copy]]:
    part, size = list[Copy](), 0
    for copy in copies:
        part.append(copy)
        size += copying.size_of(copy)
        if size >= BYTES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


async def _until_heard(heard: Watching) -> None:
    if await heard.next(timeout_s=_LOOK_EVERY_S) is not None:
        # One look is for all that happens in a moment.
        await asyncio.sleep(_GATHER_S)
    while await heard.next(timeout_s=0) is not None:
        pass
