"""Durable channels: messages that wait for their readers.

    publish ──> log:<channel> (stream, the last `keep`) ──> reader "billing" ── cursor:billing:<channel>
            └─> channel:<channel> (whoever listens now)     reader "audit"   ── cursor:audit:<channel>

A reader is woken by what is published, and reads the log: what it hears is a hint, the log is the truth. Its cursor
is the last message that it has said to have done, so after a crash it gets what it had not done, again. Messages are
numbered: one that left the log before a reader came to it leaves a gap, and the reader is told.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from kizuna.coordination.channels.log_readers import ENTRY, Cursor, Entry, Place, Reader, lag_behind
from kizuna.coordination.keys import CHANNEL_CURSOR, CHANNEL_LOG, CHANNEL_LOG_IDS
from kizuna.errors import StoreError, WrongValue
from kizuna.store.repeating import until_known
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.coordination.channels.channels import Channel
    from kizuna.store.client import Store

T = TypeVar("T")

ID_KNOWN_S = 3_600
IDS_KNOWN_AT_LEAST = 10_000
CURSOR_KEPT_S = 30 * 86_400
BATCH = 64
_ROWS_AT_ONCE = 500

publish_durably = Script.load(__package__, "publish_durably")


class Published(NamedTuple):
    entry: str
    """Where it is in the log; empty if it was published before, and has left the log."""
    heard: int
    """How many listened, as far as the server we asked can tell; 0 for a repetition."""
    repeated: bool
    """The id was known: it had been published before, and was not published again."""


class DurableChannel(Generic[T]):
    """Made by `k.channels.durable(…)`."""

    def __init__(self, store: Store, root: str, live: Channel[T], *, keep: int) -> None:
        if keep < 1:
            raise WrongValue("keep", f"{keep}", "at least one message")
        self.name = live.name
        self.live = live
        """The same channel for those who listen now only."""
        self._store, self._root, self._keep = store, root, keep
        self._log = CHANNEL_LOG.build(root, channel=live.name)
        self._ids = CHANNEL_LOG_IDS.build(root, channel=live.name)

    async def publish(self, message: T, *, id: str = "") -> Published:  # noqa: A002 - what it is called in the log
        """Put it into the log, and tell those who listen now; both or neither.

        A lost answer is no problem: it is asked for again, with the same id. Give an id yourself, and a repetition by
        you is harmless, too, also from another process; for an hour, or the next 10,000 messages (or `keep`, if more).
        """
        names = self._fixed() | {"id": id or secrets.token_hex(12), "message": self.live.encode(message)}
        return _published(await until_known(lambda: publish_durably.row(self._store, **names)))

    async def publish_many(self, messages: Sequence[T]) -> list[Published]:
        """In this order, with few round trips."""
        rows = [{"id": secrets.token_hex(12), "message": self.live.encode(message)} for message in messages]
        published: list[Published] = []
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            send = partial(self._publish, rows[start : start + _ROWS_AT_ONCE])
            published += map(_published, await until_known(send))
        return published

    @asynccontextmanager
    async def reader(
        self, name: str, *, start: str = "now", batch: int = BATCH, kept_s: int = CURSOR_KEPT_S
    ) -> AsyncIterator[Reader[T]]:
        """Read on where the reader of this name is. A new one starts with what is published from now on, at the
        `beginning`, or after the entry that is named; it is forgotten after `kept_s` seconds without use."""
        if start not in ("now", "beginning") and not ENTRY.fullmatch(start):
            raise WrongValue("start", repr(start), "now, beginning, or an entry such as 1750338000123-0")
        place = Place(self._store, self._log, self.cursor_key(name), name, kept_s * 1000)
        # Heard first, looked at then: nothing falls in between.
        async with self._store.events.listen(self.live.full_name) as feed:
            position = await until_known(lambda: place.open(start))
            yield Reader(self.live, place, feed, position, batch)

    async def entries(self, first: str = "-", last: str = "+", *, most: int = BATCH) -> list[Entry[T]]:
        """What is in the log, without any cursor; oldest first."""
        found = await self._store.call("XRANGE", self._log, first, last, "COUNT", most)
        return [Entry(self.live, *raw) for raw in found]

    async def length(self) -> int:
        length: int = await self._store.call("XLEN", self._log)
        return length

    async def lag(self, reader: str) -> int | None:
        """How many messages were published since the one that the reader has done last, those that have left the log
        included; None if that cannot be told, or there is no such reader."""
        cursor = await self._store.get(self.cursor_key(reader))
        return None if cursor is None else await lag_behind(self._store, self._log, Cursor.read(cursor))

    async def trim(self, keep: int) -> int:
        """Let go of all but the newest `keep` messages, at least one, and return how many went."""
        if keep < 1:
            raise WrongValue("keep", f"{keep}", "at least one message, by which the next is numbered")
        gone: int = await self._store.call("XTRIM", self._log, "MAXLEN", keep)
        return gone

    def cursor_key(self, reader: str) -> str:
        return CHANNEL_CURSOR.build(self._root, reader=reader, channel=self.name)

    def _fixed(self) -> dict[str, Any]:
        return {
            "log": self._log,
            "ids": self._ids,
            "channel": self.live.full_name,
            "keep": self._keep,
            "known_ms": ID_KNOWN_S * 1000,
            "most_ids": max(self._keep, IDS_KNOWN_AT_LEAST),
        }

    async def _publish(self, rows: list[dict[str, Any]]) -> list[Any]:
        results = await publish_durably.rows(self._store, rows, **self._fixed())
        for result in results:
            if isinstance(result, StoreError):
                raise result
        return results


def _published(result: list[Any]) -> Published:
    outcome, entry, *heard = result
    return Published(entry.decode(), heard[0] if heard else 0, outcome == b"known")
