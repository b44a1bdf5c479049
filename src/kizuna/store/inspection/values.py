"""Reads values for a backup: small ones many at a time, large ones in parts.

A value of up to 128 KiB is read in one step, together with its type and its remaining time: all are of one moment.
A larger one is read part by part while others may change it: whatever is in a set, a hash, a zset or a stream all the
while is in the backup; of a list that is pushed to or popped from meanwhile, items may be missing or there twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kizuna.errors import Refused
from kizuna.store.inspection.backup_file import Record, ValueType
from kizuna.store.inspection.looking import together
from kizuna.store.scanning.pacing import ROWS
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.scanning import Scan

_read_values = Script.load(__package__, "read_values")

MOST_BYTES = 128 * 1024
"""What is larger, as far as the server's estimate goes, is read in parts of about this size. If it is all small items,
they are two milliseconds of the server's time."""
_MOST_ITEMS = 1_000
_LENGTH = {"list": "LLEN", "set": "SCARD", "hash": "HLEN", "zset": "ZCARD", "stream": "XLEN"}
_SCANNED = {"set": "SSCAN", "hash": "HSCAN", "zset": "ZSCAN"}

Items = list[bytes | list[bytes]]
Reader = Callable[["Store", bytes, int], AsyncIterator[Items]]


class ValueReader:
    """Turns the keys of a scan into records, and counts what it could not."""

    def __init__(self, store: Store, scan: Scan, *, most_bytes: int = MOST_BYTES) -> None:
        self.vanished = 0
        """Keys that ended between being found and being read."""
        self.strange: dict[str, int] = {}
        """Keys of types that only some servers have, by type."""
        self._store, self._scan, self._most_bytes = store, scan, most_bytes

    async def read(self, keys: Sequence[bytes]) -> AsyncIterator[Record]:
        for group in together(self._store, keys, ROWS):
            waiting = group
            while waiting:
                rows = [{"key": key} for key in waiting]
                answer = _read_values.rows(self._store, rows, most_bytes=self._most_bytes)
                replies = await self._scan.pace.keep(answer)
                asked, waiting = waiting, []
                for key, (outcome, *told) in zip(asked, replies, strict=True):
                    if outcome == b"whole":
                        yield _whole(key, *told)
                    elif outcome == b"later":
                        waiting.append(key)
                    else:
                        async for record in self._not_whole(key, outcome, *told):
                            yield record

    async def _not_whole(self, key: bytes, outcome: bytes, *told: Any) -> AsyncIterator[Record]:
        match outcome:
            case b"large":
                async for record in self._parts(key, *told):
                    yield record
            case b"gone":
                self.vanished += 1
            case b"strange":
                kind = told[0].decode(errors="replace")
                self.strange[kind] = self.strange.get(kind, 0) + 1

    async def _parts(self, key: bytes, kind: bytes, ttl_ms: int, now_ms: int, size: int) -> AsyncIterator[Record]:
        """A large value. The last part is known only once there is nothing behind it, so each waits for the next."""
        of_type: ValueType = kind.decode()  # type: ignore[assignment]  # the script knows no other
        part, before = 0, None
        try:
            async for items in self._windows(key, of_type, size):
                if before is not None:
                    yield Record(key, of_type, ttl_ms, now_ms, part, False, before, [])
                    part += 1
                before = items
            marks = await self._marks(key) if kind == b"stream" else []
        except Refused as refusal:
            if refusal.code != "WRONGTYPE" and "no such key" not in refusal.what:
                raise
            before, marks = None, []  # it became something else: what we know of it was never its value
        if before is None and not marks:
            self.vanished += 1
            return
        yield Record(key, of_type, ttl_ms, now_ms, part, True, before or [], marks)

    async def _windows(self, key: bytes, kind: ValueType, size: int) -> AsyncIterator[Items]:
        if kind == "string":
            windows = _string(self._store, key, self._most_bytes)
        else:
            length = await self._store.call(_LENGTH[kind], key)
            count = max(1, min(_MOST_ITEMS, self._most_bytes * length // size))
            windows = _READERS[kind](self._store, key, count)
        async for items in windows:
            if items:  # a scan may come back with none, and go on
                yield items

    async def _marks(self, key: bytes) -> list[bytes]:
        stream = await self._store.call("XINFO", "STREAM", key)
        groups = await self._store.call("XINFO", "GROUPS", key)
        named = [mark for group in groups for mark in (group[b"name"], group[b"last-delivered-id"])]
        return [stream[b"last-generated-id"], *named]


def _whole(key: bytes, kind: bytes, ttl_ms: int, now_ms: int, items: list[Any], marks: list[bytes]) -> Record:
    if kind == b"zset":
        items = list(_scores_first(items))
    elif kind == b"stream":
        items = list(map(_entry, items))
    return Record(key, kind.decode(), ttl_ms, now_ms, 0, True, items, marks)  # type: ignore[arg-type]


async def _string(store: Store, key: bytes, count: int) -> AsyncIterator[Items]:
    first = 0
    while piece := await store.call("GETRANGE", key, first, first + count - 1):
        yield [piece]
        first += count
    if first == 0 and await store.call("EXISTS", key):
        yield [b""]


async def _list(store: Store, key: bytes, count: int) -> AsyncIterator[Items]:
    first = 0
    while items := await store.call("LRANGE", key, first, first + count - 1):
        yield items
        first += count


def _scanned(command: str) -> Reader:
    async def windows(store: Store, key: bytes, count: int) -> AsyncIterator[Items]:
        cursor = b"0"
        while True:
            cursor, items = await store.call(command, key, cursor, "COUNT", count)
            yield list(_scores_first(items)) if command == "ZSCAN" else items
            if cursor == b"0":
                return

    return windows


async def _stream(store: Store, key: bytes, count: int) -> AsyncIterator[Items]:
    first = b"-"
    while True:
        entries = list(map(_entry, await store.call("XRANGE", key, first, "+", "COUNT", count)))
        yield list(entries)
        if len(entries) < count:
            return
        first = b"(" + entries[-1][0]


_READERS: dict[str, Reader] = {
    "list": _list,
    "stream": _stream,
    **{kind: _scanned(command) for kind, command in _SCANNED.items()},
}


def _scores_first(items: Sequence[bytes]) -> Iterator[bytes]:
    """As ZADD takes them; the server tells the member first."""
    for member, score in zip(items[::2], items[1::2], strict=True):
        yield score
        yield member


def _entry(entry: Sequence[Any]) -> list[bytes]:
    """[id, [field, value, …]] without the inner list."""
    return [entry[0], *entry[1]]
