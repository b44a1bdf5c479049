"""Makes room on a server that is nearly full: first lives are shortened, then items are removed.

One process at a time does so, below each root. Everything works on a server that refuses writes already.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from kizuna.clock import milliseconds
from kizuna.memory import keys
from kizuna.memory.chunks import in_chunks
from kizuna.memory.item import FIELDS, Item
from kizuna.memory.pressure.candidates import Candidate, ending_later, priorities, rank_of, soonest_of_all
from kizuna.memory.pressure.measuring import Level, Pressure, measure
from kizuna.memory.raw_names import raw_key
from kizuna.memory.reading import item_of
from kizuna.memory.scripts import script
from kizuna.memory.shard import Shard
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots

log = logging.getLogger("kizuna.memory")

shorten_items = script("shorten_items")
hold_relief = Script.load("kizuna.memory", "hold_relief")
remove_items = script("remove_items")

# Rows of one script, and batches of one call: what is left after these waits for the next call.
ROWS = 100
_BATCHES = 500
# Contents that are read at once to be spilled.
_BYTES = 8 * 1024 * 1024
# Candidates that are looked for at once.
_CANDIDATES = 1_000
# Whoever makes room says so at each batch; after this, another process takes over from one that died.
_HELD_MS = 30_000


class Spillable(Protocol):
    async def spill(self, items: list[Item]) -> object:
        """Keep these: they are about to be removed from the server."""


class Relief(Struct, kw_only=True):
    """What was done."""

    shortened: int = 0
    removed: int = 0
    spilled: int = 0
    """Of those that were removed, how many the backup has."""
    by_another: bool = False
    """Another process is at it, somewhere."""
    pressure: Pressure
    """Afterwards."""

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        numbers = {"shortened": self.shortened, "removed": self.removed, "spilled": self.spilled}
        return {**numbers, "by_another": self.by_another, "pressure": self.pressure.as_dict()}


async def relieve(store: Store, roots: Roots, backup: Spillable | None = None) -> Relief:
    """Do what the pressure demands: nothing, shorten lives of low priority, or besides remove items until it is below
    `memory.remove_above`. Harmless when repeated. Raises StoreError, and what the backup raises: what it could not keep
    is not removed then."""
    relief = Relief(pressure=await measure(store, roots))
    full = [server.root for server in relief.pressure.servers if server.level != "calm"]
    if not full:
        return relief
    async with _turns(store, full) as turns:
        relief.by_another = len(turns) < len(full)
        await _Relieving(store, roots, turns, backup, relief).run()
    if relief.shortened or relief.removed:
        numbers = {"shortened": relief.shortened, "removed": relief.removed, "ratio": round(relief.pressure.ratio, 3)}
        log.warning("made room in memory", extra=numbers)
    return relief


class _Turn:
    """The right to make room below a root."""

    def __init__(self, store: Store, root: str) -> None:
        self.root = root
        self._store, self._key, self._token = store, keys.RELIEF.build(root), secrets.token_hex(8)

    async def hold(self, for_ms: int = _HELD_MS) -> bool:
        """False if another process has it."""
        return bool(await hold_relief(self._store, relief=self._key, token=self._token, hold_ms=for_ms))


@asynccontextmanager
async def _turns(store: Store, roots: Sequence[str]) -> AsyncIterator[dict[str, _Turn]]:
    """Those that no other process has."""
    held: dict[str, _Turn] = {}
    try:
        for root in roots:
            turn = _Turn(store, root)
            if await turn.hold():
                held[root] = turn
        yield held
    finally:
        for turn in held.values():
            await turn.hold(0)


class _Relieving:
    def __init__(
        self, store: Store, roots: Roots, turns: dict[str, _Turn], backup: Spillable | None, relief: Relief
    ) -> None:
        self._store, self._roots, self._turns, self._backup, self._relief = store, roots, turns, backup, relief
        self._settings = store.settings.memory
        self._shards = {root: Shard(root, self._settings.feed_length) for root in turns}
        self._batches_left = _BATCHES

    async def run(self) -> None:
        # The more urgent first: what is removed need not be shortened.
        ascending = await priorities(self._store, self._turns)
        await self._remove_lowest(ascending)
        await self._shorten_low(ascending)

    async def _measure(self) -> None:
        self._relief.pressure = await measure(self._store, self._roots)

    def _roots_at(self, *levels: Level) -> list[str]:
        return [root for root in self._turns if self._relief.pressure.server_of(root).level in levels]

    async def _may_go_on(self) -> bool:
        """Before each batch: whether there may be one more, and we are still the one who does it."""
        self._batches_left -= 1
        return self._batches_left >= 0 and all(await asyncio.gather(*(turn.hold() for turn in self._turns.values())))

    # -- shortening ---------------------------------------------------------------------------------------

    async def _shorten_low(self, ascending: Sequence[str]) -> None:
        later_than_ms = (await self._store.time_s() + self._settings.shortened_s) * 1000
        roots = self._roots_at("shorten", "remove")
        for priority in ascending:
            for root in roots if rank_of(priority) <= self._settings.low_priority else ():
                async for batch in in_chunks(ending_later(self._store, root, priority, later_than_ms), ROWS):
                    if not await self._may_go_on():
                        return
                    await self._shorten(self._shards[root], priority, batch)

    async def _shorten(self, shard: Shard, priority: str, ids: Sequence[bytes]) -> None:
        done = await shorten_items.rows(
            self._store,
            [{"id": id_} for id_ in ids],
            **shard.told,
            expiry=shard.expiry,
            priority=priority,
            left_ms=milliseconds(self._settings.shortened_s),
        )
        self._relief.shortened += sum(done)

    # -- removing -----------------------------------------------------------------------------------------

    async def _remove_lowest(self, ascending: Sequence[str]) -> None:
        for priority in ascending:
            while roots := self._roots_at("remove"):
                candidates = await soonest_of_all(self._store, roots, priority, _CANDIDATES)
                before = self._relief.removed
                if not await self._remove_until_below(candidates):
                    return
                if self._relief.removed == before:
                    break  # there are none; or others are at them, and what is left comes with the next call

    async def _remove_until_below(self, candidates: Sequence[Candidate]) -> bool:
        """False if there is no reason, or no right, to go on."""
        while candidates := [candidate for candidate in candidates if candidate.root in self._roots_at("remove")]:
            if not await self._may_go_on():
                return False
            batch = await self._worth_removing(candidates[:ROWS])
            candidates = candidates[len(batch) :]
            for root, shard in self._shards.items():
                await self._remove(shard, [candidate.id for candidate in batch if candidate.root == root])
            await self._measure()
        return bool(self._roots_at("remove"))

    async def _worth_removing(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Of the first, no more than are needed, and can be read at once; at least one."""
        sizes = [self._store.call("HSTRLEN", _item(root, id_), "content") for _, id_, root in candidates]
        before = (0, *accumulate(await asyncio.gather(*sizes)))
        too_much = (self._relief.pressure.too_much(root, self._settings.remove_above) for root in self._turns)
        enough = min(_BYTES, max(too_much))
        worth = [candidate for candidate, sum_ in zip(candidates, before, strict=False) if sum_ < enough]
        return worth or candidates[:1]

    async def _remove(self, shard: Shard, ids: Sequence[bytes]) -> None:
        """What the backup keeps is removed only as long as it is the same."""
        if not ids:
            return
        if self._backup is None:
            asked = (self._store.call("HGET", _item(shard.root, id_), "version") for id_ in ids)
            versions = [version or b"" for version in await asyncio.gather(*asked)]
            await self._end(shard, dict(zip(ids, versions, strict=True)))
        elif items := await self._read(shard, ids):
            await self._backup.spill(list(items.values()))
            versions_kept = {id_: b"%d" % item.version for id_, item in items.items()}
            self._relief.spilled += await self._end(shard, versions_kept)

    async def _end(self, shard: Shard, versions: dict[bytes, bytes]) -> int:
        """How many of them ended."""
        rows = [{"item": _item(shard.root, id_), "id": id_, "expected": version} for id_, version in versions.items()]
        outcomes = await remove_items.rows(self._store, rows, **shard.told, reason="evicted")
        # In the place of one that is no hash, the server's complaint: that one stays, for `verify` to tell.
        removed = [outcome for outcome in outcomes if isinstance(outcome, list) and outcome[0] == b"removed"]
        self._relief.removed += len(removed)
        return len(removed)

    async def _read(self, shard: Shard, ids: Sequence[bytes]) -> dict[bytes, Item]:
        """Those that are still there, in the order of the ids."""
        asked = (self._store.call("HMGET", _item(shard.root, id_), *FIELDS) for id_ in ids)
        values = await asyncio.gather(*asked)
        items = (item_of(of_one, None, id_.decode(errors="replace")) for id_, of_one in zip(ids, values, strict=True))
        return {id_: item for id_, item in zip(ids, items, strict=True) if item is not None}


def _item(root: str, id_: bytes) -> bytes:
    return raw_key(keys.ITEM, root, id_)
