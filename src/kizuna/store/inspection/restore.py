"""Puts a backup back: first everything is read and checked, then block after block is written.

Each value is built aside and moved to its place in one step, so nobody ever sees half of one. What a restore has done
is noted on the server after each block: one that was interrupted can go on there, and a repetition does no harm.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kizuna.errors import KizunaError, RestoreConflict
from kizuna.store.inspection.backup_file import Record
from kizuna.store.inspection.backup_reader import BackupReader, Block
from kizuna.store.inspection.looking import together
from kizuna.store.inspection.renaming import Renaming
from kizuna.store.keys import RESTORED, RESTORING, SLOTS, key_slot
from kizuna.store.scanning.pacing import ROWS, Pace
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.store.client import Store

_restore_values = Script.load(__package__, "restore_values")

Conflict = Literal["refuse", "skip", "replace"]
Ttl = Literal["remaining", "absolute"]

_AT_ONCE_BYTES = 128 * 1024
_ASIDE_MS = 3_600_000
_NOTE_S = 7 * 86_400
_NEVER = -1
_LENGTH = struct.Struct(">I")


class Restored(msgspec.Struct, kw_only=True):
    """What became of the keys of a backup."""

    restored: int = 0
    skipped: int = 0
    """There was such a key already, and it was left as it is."""
    expired: int = 0
    """Their time had passed since the backup."""
    incomplete: int = 0
    """Large values of which a part is missing: in a damaged file, or because they ended while they were backed up."""
    damage: list[str] = msgspec.field(default_factory=list)
    """What was passed over in a damaged file."""


class Restore:
    """One restore of one file; `run` does it.

    `roots` sends keys to other roots, `{"poppo": "copy"}`. Where a key exists: "refuse" writes nothing at all, "skip"
    leaves it, "replace" puts the value of the backup in its place. `ttl`: "remaining" gives each key the time that was
    left when it was read, "absolute" has it end when it would have ended, and leaves out what would have by now.
    """

    def __init__(
        self,
        store: Store,
        path: Path,
        *,
        roots: Mapping[str, str] | None = None,
        conflict: Conflict = "refuse",
        ttl: Ttl = "remaining",
        salvage: bool = False,
        resume: bool = False,
        progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> None:
        self.result = Restored()
        self._store, self._path = store, path
        self._rename = Renaming(roots or {})
        self._conflict, self._ttl = conflict, ttl
        self._salvage, self._resume = salvage, resume
        self._progress = progress
        self._pace = Pace()
        self._open: tuple[bytes, int] | None = None
        """The large value whose parts are being written, and the number of the part that is due."""
        self._decided: bytes | None = None
        """The large value of which further parts are not needed any more."""
        self._name = str(sorted((roots or {}).items()))

    async def run(self) -> Restored:
        """BackupDamaged, RestoreConflict: nothing was written. Any StoreError: what was written so far is whole, and
        `resume` goes on behind it."""
        reader = await asyncio.to_thread(BackupReader, self._path, salvage=self._salvage)
        try:
            note = RESTORED.build(self._store.settings.roots.system, restore=self._id(reader.header.id))
            done, begun = _read_note(await self._store.call("GET", note) if self._resume else None)
            await self._check(reader, done, begun)
            reader.damage.clear()
            await self._write(reader, note, done)
        finally:
            reader.close()
        self.result.damage = reader.damage
        return self.result

    # -- before anything is written -----------------------------------------------------------------------

    async def _check(self, reader: BackupReader, done: int, begun: int) -> None:
        """Read the file to its end; and see that no key is in the way, where that matters."""
        first, count = b"", 0
        async for block in self._blocks(reader, done, halves_before=0):
            # Of blocks that an earlier try has begun, some keys are there: those are ours.
            if self._conflict == "refuse" and block.number > begun:
                found = await self._existing(self._rename(record.key) for record in block.records if record.last)
                first, count = first or next(iter(found), b""), count + len(found)
        if count:
            raise RestoreConflict(first.decode(errors="backslashreplace"), count)

    async def _existing(self, keys: Iterable[bytes]) -> list[bytes]:
        found: list[bytes] = []
        for group in together(self._store, keys, ROWS):
            if await self._pace.keep(self._store.call("EXISTS", *group)):
                there = await asyncio.gather(*(self._store.call("EXISTS", key) for key in group))
                found += [key for key, exists in zip(group, there, strict=True) if exists]
        return found

    # -- writing ----------------------------------------------------------------------------------------------

    async def _write(self, reader: BackupReader, note: str, done: int) -> None:
        async for block in self._blocks(reader, done, halves_before=1):
            await self._store.call("SET", note, f"{done} {block.number}", "EX", _NOTE_S)
            for batch in _batches(block.records):
                await self._write_batch(batch)
            if self._open is None:
                # Else the beginning of a large value would be missing to the one who goes on from here.
                done = block.number
        self._close()
        await self._store.call("DEL", note)

    async def _write_batch(self, batch: Sequence[Record]) -> None:
        if len(batch) > 1 or (batch[0].last and batch[0].part == 0):
            self._close()
            await self._write_whole(batch)
        else:
            await self._write_part(batch[0])

    async def _write_whole(self, records: Sequence[Record]) -> None:
        groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for record in records:
            row = self._row(record)
            groups[self._store.topology.group(row["key"])].append(row)
        for outcomes in await asyncio.gather(*map(self._send, groups.values())):
            for outcome in outcomes:
                self._count(outcome)

    async def _write_part(self, record: Record) -> None:
        if record.part == 0:
            self._close()
        elif self._open != (record.key, record.part):
            self._pass_over(record)
            return
        (outcome,) = await self._send([self._row(record)])
        self._open = (record.key, record.part + 1) if outcome == b"begun" else None
        if outcome != b"begun":
            self._decided = record.key
            self._count(outcome)

    async def _send(self, rows: Sequence[dict[str, Any]]) -> list[bytes]:
        answer = _restore_values.rows(
            self._store,
            rows,
            conflict="replace" if self._conflict == "replace" else "keep",
            ends_are="at" if self._ttl == "absolute" else "in",
            aside_ms=_ASIDE_MS,
        )
        outcomes = await self._pace.keep(answer)
        for outcome in outcomes:
            if isinstance(outcome, KizunaError):
                raise outcome
        return outcomes

    def _row(self, record: Record) -> dict[str, Any]:
        key = self._rename(record.key)
        return {
            "key": key,
            "aside": self._aside(key),
            "kind": record.type,
            "part": record.part,
            "last": int(record.last),
            "items": _packed(record.items),
            "marks": _packed(record.marks),
            "ends": self._ends(record),
        }

    def _ends(self, record: Record) -> int:
        if record.ttl_ms == _NEVER:
            return _NEVER
        return record.read_at_ms + record.ttl_ms if self._ttl == "absolute" else max(record.ttl_ms, 1)

    def _aside(self, key: bytes) -> str:
        """In the slot of the key, and the same whenever this key is restored."""
        place = _tags()[key_slot(key)] if self._store.target.kind == "cluster" else "all"
        return _asides(self._store.settings.roots.system, place) + blake2b(key, digest_size=8).hexdigest()

    def _close(self) -> None:
        """No more parts of the value that is open: what there is of it goes when its time is over."""
        if self._open is not None:
            self._decided, self._open = self._open[0], None
            self.result.incomplete += 1

    def _pass_over(self, record: Record) -> None:
        """A part before this one is missing; unless the value is not wanted anyway."""
        self._close()
        if record.last and record.key != self._decided:
            self.result.incomplete += 1

    def _count(self, outcome: bytes) -> None:
        self.result.restored += outcome == b"restored"
        self.result.skipped += outcome == b"exists"
        self.result.expired += outcome == b"expired"

    # -- the file ---------------------------------------------------------------------------------------------

    async def _blocks(self, reader: BackupReader, after: int, *, halves_before: int) -> AsyncIterator[Block]:
        blocks = reader.blocks(after=after)
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            yield block
            self._progress(halves_before * reader.size + reader.tell(), 2 * reader.size)

    def _id(self, backup: str) -> str:
        """Of this backup on its way to these roots."""
        return f"{backup or 'salvaged'}-{zlib.crc32(self._name.encode()):08x}"


def _read_note(note: bytes | None) -> tuple[int, int]:
    """Up to which block all is restored, and up to which some may be."""
    done, begun = map(int, (note or b"0 0").split())
    return done, begun


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Whole values together, up to a size; a part of a large one by itself. In their order."""
    batch: list[Record] = []
    size = 0
    for record in records:
        alone = record.part > 0 or not record.last
        if batch and (alone or len(batch) == ROWS or size > _AT_ONCE_BYTES):
            yield batch
            batch, size = [], 0
        if alone:
            yield [record]
        else:
            batch.append(record)
            size += sum(map(len, record.items))
    if batch:
        yield batch


def _packed(items: Sequence[bytes | list[bytes]]) -> bytes:
    """In MessagePack as of old, which is what scripts can read: they know text, and no bytes."""
    pieces = [b"\xdd", _LENGTH.pack(len(items))]
    for item in items:
        if isinstance(item, list):
            pieces.append(_packed(item))
        else:
            pieces += (b"\xdb", _LENGTH.pack(len(item)), item)
    return b"".join(pieces)


@lru_cache(maxsize=SLOTS)
def _asides(root: str, place: str) -> str:
    """What the names of values that are built in this place begin with."""
    return RESTORING.build(root, place=place, restore="x").removesuffix("x")


@cache
def _tags() -> Sequence[str]:
    """For each slot of a cluster a tag whose keys are in it, found in a tenth of a second."""
    tags: dict[int, str] = {}
    number = 0
    while len(tags) < SLOTS:
        tags.setdefault(key_slot(str(number)), str(number))
        number += 1
    return [tags[slot] for slot in range(SLOTS)]
