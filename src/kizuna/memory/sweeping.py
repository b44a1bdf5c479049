"""The sweeper: ends what is due, goes on with what was begun, and takes in what others wrote.

Any number of processes may sweep the same memory: each step is one script, so everything ends once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from kizuna.memory import keys
from kizuna.memory.scripts import script
from kizuna.memory.settling import settle_all_contexts, settle_newest, settle_some

if TYPE_CHECKING:
    from kizuna.memory.server_contexts import ServerContexts
    from kizuna.memory.shard import Shard

log = logging.getLogger("kizuna.memory")

sweep = script("sweep")

# Ended by one script: about a millisecond, for which others wait; and then it is their turn, the longer, the longer ago
# it was that these ended. Who comes back to very many need not hurry.
_AT_ONCE = 50
_PAUSE_S, _LONG_PAUSE_S = 0.001, 0.01
_LONG_AGO_MS = 2_000
# Of each priority, how many of the newest are looked at first: what others wrote lately is among them.
_NEWEST = 200
# Looked at in one sweep, when what others wrote is not among the newest.
_LOOKED_AT = 4
# Sweeps without a reason after which is looked anyway: two changes by others may make up for each other in the counts.
_PATROL_EVERY = 8


class Swept(NamedTuple):
    ended: int = 0
    late_ms: int = 0
    """How long after its time the latest of them was ended."""
    settled: int = 0
    """What others had written, or removed."""
    next_due_ms: int = -1
    """Until the next one is due; -1 if there is none."""


class _Counts(NamedTuple):
    """How many there are in the index of ends, and how many have a place: where the two differ, others were at work."""

    items: int
    placed: int
    contexts: int
    known: int


async def end_due(keeper: ServerContexts, shard: Shard) -> tuple[Swept, _Counts]:
    """Everything that is due now, and what was begun until it is done."""
    ended, latest_ms = 0, 0
    while True:
        some, more, next_due_ms, late_ms, *counts = await sweep(
            keeper.store, **shard.told, expiry=shard.expiry, most=_AT_ONCE
        )
        ended, latest_ms = ended + some, max(latest_ms, late_ms)
        if not more:
            return Swept(ended, latest_ms, next_due_ms=next_due_ms), _Counts(*counts)
        await asyncio.sleep(_PAUSE_S if late_ms < _LONG_AGO_MS else _LONG_PAUSE_S)


class Sweeper:
    """One for each process and shard: it remembers how far it has looked."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self._sweeps = 0
        self._cursors = {keys.ITEMS_EXPIRY: b"0", keys.ITEM_PLACES: b"0"}

    async def sweep(self, keeper: ServerContexts) -> Swept:
        """Everything that is due now; and some of what others may have done."""
        swept, counts = await end_due(keeper, self.shard)
        settled = await self._settle(keeper, *counts)
        self._sweeps += 1
        return swept._replace(settled=settled)

    async def _settle(self, keeper: ServerContexts, items: int, placed: int, contexts: int, known: int) -> int:
        settled = 0
        if contexts != known:
            settled += await settle_all_contexts(keeper, self.shard)
        if items != placed:
            settled += await settle_newest(keeper, self.shard, _NEWEST) or await self._look_further(keeper, _LOOKED_AT)
        elif self._sweeps % _PATROL_EVERY == 0 and items:
            settled += await self._look_further(keeper, 1)
        return settled

    async def _look_further(self, keeper: ServerContexts, steps: int) -> int:
        settled = 0
        for family in self._cursors:
            for _ in range(steps):
                self._cursors[family], some = await settle_some(keeper, self.shard, self._cursors[family], family)
                settled += some
                if self._cursors[family] == b"0":
                    break
        return settled
