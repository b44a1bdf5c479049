"""What was journalled happens on the server, in the order in which it was written down. First it is decided what to do
about an entry, then that is done; the outcome is written down together with the rows that it makes true."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from kizuna.errors import (
    ContentSealed,
    ContextExists,
    ContextMissing,
    ItemExists,
    ItemMissing,
    OutcomeForgotten,
    PermissionDenied,
    ScriptFailed,
    VersionConflict,
)
from kizuna.memory.backup import copying, journal
from kizuna.memory.backup.file import CopyFile
from kizuna.memory.backup.journal import Entry
from kizuna.memory.backup.locks import tried
from kizuna.memory.backup.rows import ms
from kizuna.memory.backup.thread import CopyThread
from kizuna.memory.context import Context
from kizuna.memory.item import Item, ItemChange, NewItem
from kizuna.memory.keepers import Keeper
from kizuna.memory.server_keeper import ServerKeeper

log = logging.getLogger("kizuna.memory")

_AT_ONCE = 200
# What tells that it cannot happen, however often it is tried.
_IN_VAIN = (
    ContentSealed,
    ItemExists,
    ItemMissing,
    ContextExists,
    ContextMissing,
    VersionConflict,
    OutcomeForgotten,
    PermissionDenied,
    ScriptFailed,
)

Verdict = Literal["done", "expired", "conflict", "wait"]
Act = Callable[[Keeper], Awaitable[Item | Context | bool]]


class Outcome(Struct, frozen=True):
    """What became of an entry. `now`: what the server has after it, None if nothing."""

    entry: Entry
    verdict: Verdict
    now: Item | Context | None = None
    reason: str = ""


class Replayed(Struct):
    """How many there were of each, and whether some are left that can be tried again later."""

    done: int = 0
    expired: int = 0
    conflicts: int = 0
    left: bool = False
    waits: bool = False
    """They are left because it is not known yet what became of them. Else, there was no time, or another process is at
    it."""


class Replayer:
    def __init__(self, server: ServerKeeper, thread: CopyThread, lock: Path) -> None:
        self._server, self._thread, self._lock = server, thread, lock

    async def replay(self, up_to: int | None = None, *, for_s: float = math.inf) -> Replayed:
        """Everything up to that number, or all that is there now: whoever goes on writing meanwhile must not keep us at
        it, and others from it. About so long at most. Only one process of a machine does it at a time: `left` if it is
        not us, and not yet done. Raises what keeps us from the server."""
        total, loop = Replayed(), asyncio.get_running_loop()
        ends_at = loop.time() + for_s
        last = await self._thread.do(journal.last_number) if up_to is None else up_to
        with tried(self._lock) as is_ours:
            if not is_ours:
                total.left = await self._thread.do(lambda file: journal.has_up_to(file, last))
                return total
            while await self._replay_some(total, last):
                if loop.time() >= ends_at:
                    total.left = True
                    break
        return total

    async def _replay_some(self, total: Replayed, up_to: int) -> bool:
        """Whether there may be more that can be done now."""
        entries, ends, now_ms = await self._thread.do(lambda file: _first_wave(file, up_to))
        if not entries:
            return False
        current = await self._current(entries)
        steps = [self._take(*step, now_ms) for step in zip(entries, ends, current, strict=True)]
        # All of them are sent before the first is waited for, in their order.
        outcomes = await asyncio.gather(*steps, return_exceptions=True)
        known = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
        await self._thread.do(lambda file: _note(file, known), "note")
        self._count(total, known)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        total.left = total.waits = any(outcome.verdict == "wait" for outcome in known)
        return not total.left

    async def _current(self, entries: list[Entry]) -> list[Item | Context | None]:
        if entries[0].what == "context":
            return [(await self._server.read_contexts([entries[0].id]))[0]]
        return [*await self._server.read([entry.id for entry in entries])]

    async def _take(self, entry: Entry, ends_ms: int, current: Item | Context | None, now_ms: int) -> Outcome:
        if entry.not_before_ms > now_ms:
            return Outcome(entry, "wait")
        decided = decide(entry, current, ends_ms - now_ms)
        if isinstance(decided, Outcome):
            return decided
        act, verdict = decided
        if entry.is_in_doubt and (token := journal.token_of(entry)):
            self._server.doubts.add(token, (now_ms - entry.at_ms) / 1000)
        try:
            result = await act(self._server)
        except _IN_VAIN as error:
            return Outcome(entry, "conflict", await self._as_it_is(entry), str(error))
        if entry.is_in_doubt:
            # It may have happened long ago, and others have made something else of it since, or ended it.
            return Outcome(entry, verdict, await self._as_it_is(entry))
        return Outcome(entry, verdict, None if isinstance(result, bool) else result)

    async def _as_it_is(self, entry: Entry) -> Item | Context | None:
        if entry.what == "context":
            return (await self._server.read_contexts([entry.id]))[0]
        return (await self._server.read([entry.id]))[0]

    def _count(self, total: Replayed, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            entry = outcome.entry
            if outcome.verdict == "conflict":
                total.conflicts += 1
                extra = {"what": entry.what, "id": entry.id, "op": entry.op, "reason": outcome.reason}
                log.warning("conflict: written while the server was away, and not taken by it", extra=extra)
            elif outcome.verdict == "expired":
                total.expired += 1
            elif outcome.verdict == "done":
                total.done += 1


# -- deciding ------------------------------------------------------------------------------------------------


def decide(entry: Entry, current: Item | Context | None, left_ms: int) -> Outcome | tuple[Act, Verdict]:
    """What to do about an entry, whose item or context is this on the server now, and would live so long from now."""
    if entry.op == "write" and entry.base_version == 0:
        return _create(entry, left_ms) if left_ms > 0 else Outcome(entry, "expired", current)
    if current is None:
        if entry.op == "remove":
            return Outcome(entry, "done")
        if left_ms <= 0:
            return Outcome(entry, "expired")
        return Outcome(entry, "conflict", None, "it is no longer there, and what has ended is not made again")
    if entry.base_created_ms not in (None, ms(current.created_at)):
        return Outcome(entry, "conflict", current, "another one of this id was created meanwhile")
    if entry.what == "context":
        return _change_context(entry, left_ms)
    return _change_item(entry, current, left_ms)


def _create(entry: Entry, left_ms: int) -> tuple[Act, Verdict]:
    new = msgspec.structs.replace(journal.body_of(entry), ttl_ms=left_ms)
    if isinstance(new, NewItem):
        # Had there been one to replace, it would not have been created here.
        created = msgspec.structs.replace(new, replaces=False)
        return lambda server: server.write(created), "done"
    return lambda server: server.write_context(new), "done"


def _change_item(entry: Entry, current: Any, left_ms: int) -> Outcome | tuple[Act, Verdict]:
    id_, base = entry.id, entry.base_version
    if entry.op == "remove":
        return lambda server: server.remove(id_, base), "done"
    if entry.op == "touch":
        if left_ms <= 0:
            return Outcome(entry, "expired", current)
        return lambda server: server.touch(id_, left_ms), "done"
    if left_ms <= 0:
        # It was told when to end, and that time has passed.
        return lambda server: server.remove(id_, base), "expired"
    body = journal.body_of(entry)
    if isinstance(body, NewItem):
        return _replace(entry, body, current, left_ms)
    ttl_ms = None if body.ttl_ms is None else left_ms
    change = msgspec.structs.replace(body, expected_version=base, ttl_ms=ttl_ms)
    return lambda server: server.change(change), "done"


def _replace(entry: Entry, new: NewItem, current: Item, left_ms: int) -> Outcome | tuple[Act, Verdict]:
    if msgspec.structs.replace(current.more, generation_number=0) == new.more:
        # A change, which is told the version that it has to find.
        change = ItemChange(
            id=new.id,
            token=new.token,
            expected_version=entry.base_version,
            content=new.content,
            metadata=new.metadata,
            type=new.type,
            to_context=new.context,
            priority=new.priority,
            ttl_ms=left_ms,
        )
        return lambda server: server.change(change), "done"
    if current.version != entry.base_version:
        return Outcome(entry, "conflict", current, f"it is at version {current.version}, not {entry.base_version}")
    return lambda server: server.write(msgspec.structs.replace(new, ttl_ms=left_ms)), "done"


def _change_context(entry: Entry, left_ms: int) -> tuple[Act, Verdict]:
    id_ = entry.id
    if entry.op == "touch":
        return lambda server: server.touch_context(id_, max(left_ms, 1)), "done"
    body = journal.body_of(entry)
    if entry.op == "remove":
        return lambda server: server.remove_context(id_, body.items), "done"
    ttl_ms = None if body.ttl_ms is None else max(left_ms, 1)
    change = msgspec.structs.replace(body, expected_version=entry.base_version, ttl_ms=ttl_ms)
    return lambda server: server.change_context(change), "done"


# -- in the file ---------------------------------------------------------------------------------------------


def _first_wave(file: CopyFile, up_to: int) -> tuple[list[Entry], list[int], int]:
    """The first entries of the journal, each of another item; a context goes alone, for what it does to its items."""
    wave: list[Entry] = []
    for entry in journal.first(file, _AT_ONCE):
        is_next = entry.what == "item" and entry.id not in {other.id for other in wave}
        if entry.number > up_to or (wave and not is_next):
            break
        wave.append(entry)
        if entry.what == "context":
            break
    return wave, [journal.ends_ms(file, entry) for entry in wave], file.now_ms()


def _note(file: CopyFile, outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        entry = outcome.entry
        if outcome.verdict == "wait":
            continue
        if outcome.verdict == "conflict":
            journal.move_to_conflicts(file, entry, outcome.reason)
            _take_over(file, entry, outcome.now)
        elif journal.drop(file, entry):
            _take_over(file, entry, outcome.now)
        elif outcome.now is not None:
            # What is journalled from now on is based on what the server created, not on what was created here.
            table, created_ms = f"{entry.what}s", ms(outcome.now.created_at)
            file.run(f"UPDATE {table} SET created_ms = ? WHERE id = ?", (created_ms, entry.id))


def _take_over(file: CopyFile, entry: Entry, now: Item | Context | None) -> None:
    """Nothing more is journalled of it: the copy is what the server has."""
    if isinstance(now, Item):
        copying.put_item(file, now)
    elif isinstance(now, Context):
        copying.put_context(file, now)
    elif entry.what == "item":
        copying.end_item(file, entry.id)
    else:
        copying.end_context(file, entry.id)
