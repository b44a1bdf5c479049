"""What happened to items and contexts: heard as it happens, or read from the feed, which forgets nothing at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import Struct

from kizuna.errors import EventsGone, NotPrimary, OutcomeUnknown, Overloaded, Refused, Unreachable, WrongValue
from kizuna.memory import keys
from kizuna.memory.drafts import check_limit
from kizuna.store.events import LookAgain
from kizuna.store.replies import paired

if TYPE_CHECKING:
    from kizuna.memory.server_contexts import ServerContexts
    from kizuna.memory.shard import Shard
    from kizuna.store.events import Feed, Message

KINDS = tuple(f"{what}:{event}" for what in ("item", "ctx") for event in ("created", "updated", "deleted", "expired"))

_ENTRY = re.compile(r"\d{1,20}-\d{1,20}", re.ASCII)
_OLDEST, _NOTHING_YET = "0", "0-0"
_MOST_EVENTS = 10_000
# The last resort: whatever is not heard is seen after this time.
_LOOK_EVERY_S = 5.0
_TRY_AGAIN_S = 0.1
# What ends by itself when the server is back.
_AWAY = (Unreachable, Overloaded, OutcomeUnknown, NotPrimary)


class Event(Struct, frozen=True, kw_only=True):
    """`kind` is "item:created", "ctx:expired" …; `context` is the context itself, if it is about one."""

    kind: str
    id: str
    type: str
    context: str
    at: float
    """Seconds since the epoch, by the server's clock."""
    version: int = 0
    """0 where that is not told: by those who heard it as it happened, and of what had ended before anybody looked."""
    reason: str = ""
    """Of what has ended: deleted, time, context, changed, generation, evicted; of changes: replaced, moved, touched,
    used, shortened, resealed, context. Empty where there is none, or it is not told."""
    cursor: str = ""
    """Where the feed goes on after it."""


class Events(Struct, frozen=True):
    """What `events_since` returns."""

    events: list[Event]
    cursor: str
    """Where to go on."""


class Watching:
    """Events as they happen, of the kinds asked for. Where some may have been missed there is a LookAgain."""

    def __init__(self, feed: Feed[Message], kinds: frozenset[str], context: str | None, type_: str | None) -> None:
        self._feed, self._kinds, self._context, self._type = feed, kinds, context, type_

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event | LookAgain:
        while True:
            event = self._wanted(await anext(self._feed))
            if event is not None:
                return event

    async def next(self, *, timeout_s: float | None = None) -> Event | LookAgain | None:
        """The next one, or None if none came in that time."""
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await anext(self)
        except TimeoutError:
            if limit.expired():
                return None
            raise

    def _wanted(self, heard: Message | LookAgain) -> Event | LookAgain | None:
        if isinstance(heard, LookAgain):
            return heard
        event = heard_event(heard.channel, heard.payload)
        if event is None or event.kind not in self._kinds:
            return None
        if self._context not in (None, event.context) or self._type not in (None, event.type):
            return None
        return event


def heard_event(channel: str, payload: bytes) -> Event | None:
    """What was published; None if it is nothing that we know."""
    what, _, event = channel.rpartition(":")
    kind = f"{what.rpartition(':')[2]}:{event}"
    try:
        told = msgspec.json.decode(payload)
        data = told["data"]
        id_, type_ = data["id"], data.get("type") or ""
        context = id_ if kind.startswith("ctx:") else data.get("contextId") or ""
        return Event(kind=kind, id=str(id_), type=str(type_), context=str(context), at=float(told["timestamp"]) / 1000)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None


def checked_kinds(kinds: Iterable[str]) -> frozenset[str]:
    """All, if none is named. WrongValue for one that there is not."""
    wanted = frozenset(kinds) or frozenset(KINDS)
    for kind in wanted - frozenset(KINDS):
        raise WrongValue("kind of event", repr(kind), f"one of {', '.join(KINDS)}")
    return wanted


class FeedReader:
    """Reads the feeds of all shards as one. A cursor is one entry of each, in their order."""

    def __init__(self, keeper: ServerContexts, base_root: str) -> None:
        self._keeper, self._store = keeper, keeper.store
        self._channels = f"{base_root}{keys.ALL_EVENTS}"

    @asynccontextmanager
    async def watch(
        self, kinds: Iterable[str], context: str | None = None, type_: str | None = None
    ) -> AsyncIterator[Watching]:
        wanted = checked_kinds(kinds)
        async with self._store.events.listen(self._channels) as feed:
            yield Watching(feed, wanted, context, type_)

    async def now_cursor(self) -> str:
        """After everything that has happened until now."""
        newest = await asyncio.gather(
            *(self._store.call("XREVRANGE", shard.feed, "+", "-", "COUNT", 1) for shard in self._keeper.shards)
        )
        return ",".join(found[0][0].decode() if found else _NOTHING_YET for found in newest)

    async def events_since(self, cursor: str, limit: int = 100) -> Events:
        """What happened after the cursor, the oldest first. EventsGone if some of it is no longer there."""
        check_limit(limit, _MOST_EVENTS)
        shards = self._keeper.shards
        if cursor == "$":
            return Events([], await self.now_cursor())
        places = self._places(cursor)
        entries = await asyncio.gather(
            *(self._read(shard, place, limit) for shard, place in zip(shards, places, strict=True))
        )
        return self._merged(places, entries, limit)

    async def follow(self, cursor: str) -> AsyncIterator[Event]:
        """`events_since`, again and again: waits for what comes, and while the server is away, for that."""
        if cursor == "$":
            cursor = await self.now_cursor()
        self._places(cursor)
        async with self._store.events.listen(self._channels) as feed:
            while True:
                try:
                    found = await self.events_since(cursor)
                except _AWAY:
                    await asyncio.sleep(_TRY_AGAIN_S)
                    continue
                for event in found.events:
                    cursor = event.cursor
                    yield event
                if not found.events:
                    await _heard(feed)

    # -- inside -----------------------------------------------------------------------------------------

    def _places(self, cursor: str) -> list[str]:
        shards = len(self._keeper.shards)
        if cursor in ("", _OLDEST):
            return [_OLDEST] * shards
        places = cursor.split(",") if isinstance(cursor, str) else []
        if len(places) != shards or not all(place == _OLDEST or _ENTRY.fullmatch(place) for place in places):
            raise WrongValue("cursor", repr(cursor), "0, $, or the cursor of an event of this memory")
        return places

    async def _read(self, shard: Shard, place: str, limit: int) -> list[Any]:
        # The entry of the cursor itself as well: if that is still there, nothing after it is gone.
        found: list[Any] = await self._store.call("XRANGE", shard.feed, place, "+", "COUNT", limit + 1)
        if place == _OLDEST:
            return found[:limit]
        if place == _NOTHING_YET and await self._has_all(shard):
            return found[:limit]
        if found and found[0][0].decode() == place:
            return found[1:]
        raise EventsGone(place)

    async def _has_all(self, shard: Shard) -> bool:
        """Whether the feed still holds everything that was ever in it. Servers before Redis 7 do not know: there, one
        that is as long as it may be does not."""
        try:
            info: dict[bytes, Any] = await self._store.call("XINFO", "STREAM", shard.feed)
        except Refused:
            # There is none yet.
            return True
        length = int(info[b"length"])
        if b"entries-added" in info:
            return int(info[b"entries-added"]) == length
        return length < self._store.settings.memory.feed_length

    def _merged(self, places: list[str], entries: list[list[Any]], limit: int) -> Events:
        # Where there was nothing, there is nothing before what comes.
        reading = [
            _NOTHING_YET if place == _OLDEST and not found else place
            for place, found in zip(places, entries, strict=True)
        ]
        in_order = sorted((_order(entry[0]), number, entry) for number, found in enumerate(entries) for entry in found)
        events = []
        for _, number, (entry, fields) in in_order[:limit]:
            reading[number] = entry.decode()
            events.append(_read_event(entry.decode(), paired(fields), ",".join(reading)))
        return Events(events, ",".join(reading))


async def _heard(feed: Feed[Message]) -> None:
    """Until there may be something; one look is for all that was heard until now."""
    await feed.next(timeout_s=_LOOK_EVERY_S)
    while await feed.next(timeout_s=0) is not None:
        pass


def _order(entry: bytes) -> tuple[int, int]:
    ms, _, number = entry.partition(b"-")
    return int(ms), int(number)


def _read_event(entry: str, fields: dict[bytes, bytes], cursor: str) -> Event:
    def text(name: bytes) -> str:
        return fields.get(name, b"").decode(errors="replace")

    version = text(b"version")
    return Event(
        kind=text(b"event"),
        id=text(b"id"),
        type=text(b"type"),
        context=text(b"contextId"),
        at=int(entry.partition("-")[0]) / 1000,
        version=int(version) if version.isdecimal() else 0,
        reason=text(b"reason"),
        cursor=cursor,
    )
