"""Readers of durable channels: where they are, what they get, and what they are told when something is gone."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from kizuna.errors import MessagesGone, NotPrimary, OutcomeUnknown, Overloaded, Undecodable, Unreachable
from kizuna.store.repeating import until_known
from kizuna.store.replies import paired
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.coordination.channels.channels import Channel
    from kizuna.store.client import Store
    from kizuna.store.events import Feed
    from kizuna.store.events import Message as RawMessage

log = logging.getLogger("kizuna.coordination")

T = TypeVar("T")

ENTRY = re.compile(r"\d{1,20}-\d{1,20}", re.ASCII)
# The last resort: whatever is not heard is seen after this time.
_LOOK_EVERY_S = 5.0
# What ends by itself when the server is back.
_AWAY = (Unreachable, Overloaded, OutcomeUnknown, NotPrimary)

open_cursor = Script.load(__package__, "open_cursor")
advance_cursor = Script.load(__package__, "advance_cursor")


class Cursor(NamedTuple):
    entry: str
    number: int | None
    """None if somebody else added that entry, without a number."""

    @classmethod
    def read(cls, text: bytes) -> Cursor:
        entry, _, number = text.decode(errors="replace").partition(" ")
        if not ENTRY.fullmatch(entry):
            raise Undecodable("cursor", "an entry, `1750338000123-0` say, and its number are expected", text)
        return cls(entry, int(number) if number.isdecimal() else None)


class Entry(Generic[T]):
    """A message in the log."""

    def __init__(self, channel: Channel[T], entry: bytes, fields: list[bytes]) -> None:
        named = paired(fields)
        number = named.get(b"number", b"")
        self.entry = entry.decode()
        self.id = named.get(b"id", b"").decode(errors="replace")
        """The publisher's."""
        self.number = int(number) if number.isdigit() else None
        """Counted from 1; None if somebody else added it, without one."""
        self.raw = named.get(b"message", b"")
        self._channel = channel

    def __repr__(self) -> str:
        return f"Entry({self.entry}, number={self.number}, id={self.id!r}, raw={self.raw[:40]!r})"

    @cached_property
    def value(self) -> T:
        """The message. Undecodable if it is not in the channel's format; it can be `done` all the same."""
        return self._channel.decode(self.raw)

    @property
    def at_s(self) -> float:
        """When it was published, by the server's clock, in seconds since the epoch."""
        return int(self.entry.partition("-")[0]) / 1000


class Place(NamedTuple):
    """Where a reader keeps its cursor."""

    store: Store
    log: str
    cursor: str
    reader: str
    keep_ms: int

    async def open(self, start: str) -> Cursor:
        found = await open_cursor(self.store, log=self.log, cursor=self.cursor, start=start, keep_ms=self.keep_ms)
        return Cursor.read(found)

    async def renew(self) -> None:
        try:
            await self.store.call("PEXPIRE", self.cursor, self.keep_ms)
        except _AWAY as error:
            # There will be nine more times.
            log.warning("cursor not renewed", extra={"key": self.cursor, "error": str(error)})

    async def advance(self, entry: str, number: int | None) -> bool:
        number_or_not = "?" if number is None else number
        outcome = await advance_cursor(
            self.store, cursor=self.cursor, entry=entry, number=number_or_not, keep_ms=self.keep_ms
        )
        return bool(outcome == b"advanced")


class Reader(Generic[T]):
    """Iterate over it for entries; say `done` for what is done, which speaks for all entries before it, too.

    Raises MessagesGone where entries left the log before they were read; reading on gives the next there is. Until
    something later is done, the same is raised whenever the reader is opened. A server that is away is waited for.
    Two processes that read under one name both get everything: to share work, use a queue.
    """

    def __init__(self, channel: Channel[T], place: Place, feed: Feed[RawMessage], position: Cursor, batch: int) -> None:
        self._channel, self._place, self._feed = channel, place, feed
        self._position, self._batch = position, batch
        self._ready: deque[Entry[T]] = deque()
        self._renewed_at = asyncio.get_running_loop().time()
        self._renew_every_s = place.keep_ms / 10_000

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry[T]:
        if not self._ready:
            self._ready.extend(await self._read())
        return self._ready.popleft()

    async def next(self, *, timeout_s: float | None = None) -> Entry[T] | None:
        """The next entry, or None if there was none in that time."""
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await self.__anext__()
        except TimeoutError:
            if limit.expired():
                return None
            raise

    async def batches(self) -> AsyncIterator[list[Entry[T]]]:
        """As many as there are at once, up to the batch that was asked for; never none."""
        while True:
            yield await self.look() or await self._read()

    async def look(self) -> list[Entry[T]]:
        """What is there now, up to a batch; none if there is nothing."""
        ready = list(self._ready)
        self._ready.clear()
        return ready or await self._look()

    async def done(self, entry: Entry[T]) -> bool:
        """All up to this entry is done, and will not be read again under this name. False if the cursor was there, or
        further, already: it never goes back."""
        return await until_known(lambda: self._place.advance(entry.entry, entry.number))

    async def lag(self) -> int | None:
        """How many messages were published since the one that was read last; None if that cannot be told."""
        behind = await lag_behind(self._place.store, self._place.log, self._position)
        return None if behind is None else behind + len(self._ready)

    # -- inside -----------------------------------------------------------------------------------------

    async def _read(self) -> list[Entry[T]]:
        while not (entries := await self._look()):
            await self._wait()
        return entries

    async def _look(self) -> list[Entry[T]]:
        return self._taken([Entry(self._channel, *found) for found in await self._range()])

    async def _range(self) -> list[Any]:
        store, command = self._place.store, ("XRANGE", self._place.log, f"({self._position.entry}", "+")
        while True:
            try:
                found: list[Any] = await store.call(*command, "COUNT", self._batch)
            except _AWAY as error:
                log.warning("log not read yet", extra={"key": self._place.log, "error": str(error)})
                # Raises, and so ends it, when it is we who are closed.
                await self._feed.next(timeout_s=store.settings.store.reconnect_first_s)
            else:
                return found

    def _taken(self, entries: list[Entry[T]]) -> list[Entry[T]]:
        """Move on to the first gap, or to the end of them; MessagesGone if the gap is before all of them."""
        for place, entry in enumerate(entries):
            expected = None if self._position.number is None else self._position.number + 1
            number = expected if entry.number is None else entry.number
            if number is not None and expected is not None and number != expected:
                if place:
                    return entries[:place]
                self._position = Cursor(self._position.entry, number - 1)
                gone = number - expected if number > expected else None
                raise MessagesGone(self._channel.name, self._place.reader, gone)
            self._position = Cursor(entry.entry, number)
        return entries

    async def _wait(self) -> None:
        """Until there may be something: we heard it, missed something, or it is time to look anyway."""
        await self._renew_if_due()
        await self._feed.next(timeout_s=min(_LOOK_EVERY_S, self._renew_every_s))
        # One look is for all that was heard until now.
        while await self._feed.next(timeout_s=0) is not None:
            pass

    async def _renew_if_due(self) -> None:
        """Who waits for something to do uses its cursor, too."""
        now = asyncio.get_running_loop().time()
        if now - self._renewed_at >= self._renew_every_s:
            self._renewed_at = now
            await self._place.renew()


async def lag_behind(store: Store, log_key: str, cursor: Cursor) -> int | None:
    newest = await store.call("XREVRANGE", log_key, "+", "-", "COUNT", 1)
    if not newest:
        return 0
    number = paired(newest[0][1]).get(b"number", b"")
    if cursor.number is None or not number.isdigit():
        return None
    return max(0, int(number) - cursor.number)
