"""The ticks of a backend on one shard, one after the other; whatever happens, nothing that was taken is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kizuna.errors import OutcomeUnknown
from kizuna.match.backend.batch import Batch
from kizuna.match.backend.one_tick import OneTick
from kizuna.match.backend.tick import Added, Tick
from kizuna.match.shard import BATCHES

if TYPE_CHECKING:
    from kizuna.match.backend.backlog import Backlog
    from kizuna.match.backend.cache import TicketCache
    from kizuna.match.backend.counts import Counts
    from kizuna.match.backfill_steps import BackfillSteps
    from kizuna.match.matches import Evaluator
    from kizuna.match.shard import Shard


class ShardTicks:
    def __init__(
        self,
        shard: Shard,
        backfills: BackfillSteps,
        backlog: Backlog,
        cache: TicketCache,
        backend: str,
        counts: Counts,
    ) -> None:
        self.shard, self.backlog = shard, backlog
        self._backfills, self._cache, self._backend, self._counts = backfills, cache, backend, counts
        self._batches = 0
        self._ahead: asyncio.Task[Batch] | None = None
        """Takes the next batch while this one is worked on: server and functions need not wait for each other."""
        self._is_unclear = False
        """An answer was lost: what was taken is known to the server alone."""

    @property
    def has_more(self) -> bool:
        """Another tick should follow at once: there are tickets that this one did not see, or that were taken ahead."""
        return self._ahead is not None or self.backlog.has_more

    async def tick(
        self, added: Sequence[Added], evaluator: Evaluator | None, limit: int, *, validate: bool, ahead: bool
    ) -> Tick:
        """`ahead` if another one will follow at once, should there be more than one can take."""
        if self._is_unclear:
            await self.let_go()
        batch = await self._next_batch(limit)
        if ahead and self.backlog.has_more:
            self._ahead = asyncio.create_task(self._take(limit), name="kizuna takes tickets ahead")
            # So that it is on its way before functions keep us busy.
            await asyncio.sleep(0)
        one = OneTick(
            self.shard, self._backfills, self._cache, self._counts, batch, added, evaluator, validate=validate
        )
        try:
            if batch.open:
                await one.run()
            else:
                self._counts.saw_nobody(self.shard.prefix)
        finally:
            if not await batch.let_go():
                self._is_unclear = True
        one.tick.released = batch.released
        self._counts.released += batch.released
        return one.tick

    async def let_go(self) -> None:
        """Give back what was taken ahead, and what an answer was lost of."""
        if self._ahead is not None:
            await (await self._next_batch(0)).let_go()
        if self._is_unclear:
            self._counts.given_back += await self.shard.give_back(self._backend)
            self._is_unclear = False

    async def _next_batch(self, limit: int) -> Batch:
        if self._ahead is None:
            return await self._take(limit)
        ahead, self._ahead = self._ahead, None
        return await ahead

    async def _take(self, limit: int) -> Batch:
        ids = await self.backlog.next(limit)
        self._batches += 1
        batch = Batch(self.shard, self._cache, self._backend, self._batches % BATCHES)
        try:
            if ids:
                await batch.take(ids)
        except BaseException as error:
            if isinstance(error, (OutcomeUnknown, asyncio.CancelledError)) or not await batch.let_go():
                self._is_unclear = True
            raise
        if ids:
            self._counts.fetch_s.observe(batch.took_s)
            self._counts.fetched += len(batch.tickets)
        return batch
