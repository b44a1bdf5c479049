"""Watching the state of a unit: what is there, and then each change.

    notification, or a look at all ──> that key may have changed ──┐
    it is due to end ──────────────────────────────────────────────┴──> read it ──> another than was told? tell

What is told is what was read, and each reading comes after the one before: nobody is told of something older after
something newer. How often a key is read has nothing to do with how often it is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Self

from kizuna.errors import PermissionDenied, SignInRefused, StoreError, TlsRefused, Unreachable
from kizuna.units.reading import read_values
from kizuna.units.state.changes import NEVER, StateChange, Told

if TYPE_CHECKING:
    from kizuna.codecs import Codec
    from kizuna.errors import KizunaError
    from kizuna.store.client import Store
    from kizuna.units.state.hearing import StateHearing
    from kizuna.units.state.selection import Selection

log = logging.getLogger("kizuna.units")

# Enough that many are read quickly; few enough that their values may be large.
_READ_TOGETHER = 64
# A key that is due is gone a moment later; who comes too early has to come again.
_GRACE_S = 0.005
_NOT_MENDED_BY_WAITING = (PermissionDenied, SignInRefused, TlsRefused)


class Watch:
    """To be iterated over, or to be entered with `async with`, which subscribes and gives `Changes`."""

    def __init__(self, make: Callable[[], Changes]) -> None:
        self._make = make
        self._changes: Changes | None = None

    async def __aenter__(self) -> Changes:
        self._changes = self._make()
        await self._changes.open()
        return self._changes

    async def __aexit__(self, *_: object) -> None:
        assert self._changes is not None  # noqa: S101 - entered before it is left
        await self._changes.aclose()

    async def __aiter__(self) -> AsyncIterator[StateChange]:
        async with Watch(self._make) as changes:
            async for change in changes:
                yield change


class Changes:
    """As an async iterator, or one by one by `next`; it ends with its `async with`, or with the store."""

    def __init__(
        self, store: Store, selection: Selection, codec: Codec, hearing: StateHearing, *, changes_only: bool
    ) -> None:
        self._store, self._selection, self._codec, self._hearing = store, selection, codec, hearing
        self._changes_only = changes_only
        self._told = Told()
        self._to_read: dict[bytes, bool | None] = {}
        """As in what was heard; None for those that are only looked at because all are."""
        self._found: set[bytes] = set()
        self._ready: deque[StateChange] = deque()
        self._advancing: asyncio.Task[StateChange] | None = None
        self._clock = asyncio.get_running_loop().time
        self._is_behind = False

    @property
    def polling(self) -> KizunaError | None:
        """Why changes are looked for every `units.poll_every_s`; None while they are announced."""
        return self._hearing.polling

    async def next(self, *, timeout_s: float | None = None) -> StateChange | None:
        """The next change, or None if none came in that time. Raises Unreachable once there can be none any more."""
        if self._advancing is None and self._ready and not self._hearing.is_closed:
            return self._ready.popleft()
        if self._advancing is None:
            # A task, because it must not begin anew each time that somebody's patience ends.
            self._advancing = asyncio.get_running_loop().create_task(self._advance(), name="kizuna units watch")
        advancing = self._advancing
        await asyncio.wait([advancing], timeout=timeout_s)
        if not advancing.done():
            return None
        if self._advancing is advancing:
            self._advancing = None
        if advancing.cancelled():
            raise _closed()
        return advancing.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StateChange:
        try:
            change = await self.next()
        except Unreachable:
            if self._hearing.is_closed:
                raise StopAsyncIteration from None
            raise
        assert change is not None  # noqa: S101 - it is only without a timeout that it is waited for
        return change

    async def open(self) -> None:
        """Raises what keeps it from reading; where it may not hear, it looks."""
        try:
            await self._hearing.open()
            await self._search()
            if self._changes_only:
                await self._take_note()
            else:
                self._found.update(self._to_read)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        await self._hearing.aclose()
        if self._advancing is not None:
            self._advancing.cancel()
            # Whatever became of it, nobody asks any more.
            await asyncio.gather(self._advancing, return_exceptions=True)

    # -- inside -----------------------------------------------------------------------------------------

    async def _advance(self) -> StateChange:
        while not self._ready:
            if self._hearing.is_closed:
                raise _closed()
            try:
                await self._look()
            except _NOT_MENDED_BY_WAITING:
                raise
            except StoreError as error:
                await self._fall_behind(error)
        return self._ready.popleft()

    async def _look(self) -> None:
        """One step: read some, or see what is to be read, or wait until there is something."""
        if self._to_read:
            await self._read_some()
        elif self._hearing.must_search:
            await self._search()
        elif to_read := dict.fromkeys(self._told.overdue(self._clock()), False) | self._hearing.heard:
            self._to_read, self._hearing.heard = {**to_read}, {}
        else:
            await self._hearing.wait(self._told.soonest + _GRACE_S)

    async def _search(self) -> None:
        """Everything is to be read: what is there, and what was there and may have ended."""
        began = self._clock()
        # Before the first look: should something be missed while we are at it, that is another search.
        self._hearing.must_search = False
        to_read = dict.fromkeys(self._told.keys)
        try:
            async for key in self._selection.keys(self._store):
                to_read[key] = None
        except BaseException:
            self._hearing.must_search = True
            raise
        self._to_read = to_read
        self._hearing.searched(self._clock() - began)

    async def _take_note(self) -> None:
        """Of what is there, without telling."""
        while self._to_read:
            await self._read_some()
        self._ready.clear()

    async def _read_some(self) -> None:
        """Nothing is changed before all is read: cancelled or failed, it is read again."""
        some = dict(islice(self._to_read.items(), _READ_TOGETHER))
        ids = {key: id_ for key in some if (id_ := self._selection.id_of(key)) is not None}
        values, ends = await self._values_and_ends({key: some[key] for key in ids})
        self._is_behind = False
        for key in some:
            del self._to_read[key]
        for (key, id_), raw in zip(ids.items(), values, strict=True):
            has_expired = bool(self._hearing.heard.get(key, some[key]))
            self._take(key, id_, raw, due=ends.get(key), has_expired=has_expired)

    async def _values_and_ends(
        self, wanted: Mapping[bytes, bool | None]
    ) -> tuple[list[bytes | None], dict[bytes, float]]:
        """Where something was heard, the end is asked for together with the value; else only if the value is new."""
        now = self._clock()
        heard = [key for key, hint in wanted.items() if hint is not None]
        values, ends = await asyncio.gather(read_values(self._store, list(wanted)), self._read_ends(heard))
        found = zip(wanted, values, strict=True)
        also = [key for key, raw in found if key not in ends and self._told.wants_end(key, raw, now)]
        return values, ends | await self._read_ends(also)

    async def _read_ends(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        # Counted from before it was asked, so that nothing ends sooner than is thought.
        asked_at = self._clock()
        replies = await asyncio.gather(*(self._store.call("PTTL", key) for key in keys))
        return {key: _end(asked_at, int(ms)) for key, ms in zip(keys, replies, strict=True)}

    def _take(self, key: bytes, id_: str, raw: bytes | None, *, due: float | None, has_expired: bool) -> None:
        kind = self._told.take(key, raw, due=due, now=self._clock(), has_expired=has_expired)
        found = key in self._found
        self._found.discard(key)
        if kind is not None:
            self._ready.append(StateChange(id_, kind, raw, found and kind == "set", codec=self._codec))

    async def _fall_behind(self, error: StoreError) -> None:
        if self._hearing.is_closed:
            raise _closed() from error
        if not self._is_behind:
            log.warning("state is not up to date", extra={"pattern": self._selection.glob, "error": str(error)})
        self._is_behind = True
        await asyncio.sleep(self._store.settings.units.poll_every_s)


def _end(asked_at: float, ms: int) -> float:
    """-1 is without an end, -2 has ended since it was read."""
    return NEVER if ms == -1 else asked_at + max(ms, 0) / 1000


def _closed() -> Unreachable:
    return Unreachable("this watch is closed", "store.events", "enter it again, with a store that is connected")
