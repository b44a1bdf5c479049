"""Tickets that were taken together: each is assigned, given back, or still open; in the end none is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kizuna.errors import StoreError, TicketsLocked
from kizuna.match.pools import BY_AGE
from kizuna.match.shard import MOST_IDS, chunks

if TYPE_CHECKING:
    from kizuna.match.backend.cache import TicketCache
    from kizuna.match.shard import Shard
    from kizuna.match.tickets import Ticket

log = logging.getLogger("kizuna.match")


class Batch:
    """Of a backend, the one of this number; it has a few at a time, and each is remembered by itself."""

    def __init__(self, shard: Shard, cache: TicketCache, backend: str, number: int) -> None:
        self._shard, self._cache, self._backend, self._number = shard, cache, backend, number
        self.open: set[str] = set()
        """Taken, and neither assigned nor given back."""
        self.tickets: list[Ticket] = []
        """All of them, the oldest first."""
        self.now_s = 0.0
        """The server's time when they were taken."""
        self._taken_at = time.perf_counter()
        self.busy = 0
        """How many somebody else was matching, or is about to write."""
        self.released = 0
        self.took_s = 0.0

    @property
    def later_s(self) -> float:
        """The server's time by now."""
        return self.now_s + time.perf_counter() - self._taken_at

    async def take(self, ids: Sequence[str]) -> None:
        """Those of them that can be taken. Each part is read as soon as it is taken, while the server is busy with the
        next."""
        began = time.perf_counter()
        # Sent in their order, on one connection: the first one begins the list of what is held.
        parts = [self._take_part(some, begins=number == 0) for number, some in enumerate(chunks(ids, MOST_IDS))]
        for outcome in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        self.tickets.sort(key=BY_AGE)
        self.took_s = time.perf_counter() - began

    async def _take_part(self, ids: Sequence[str], *, begins: bool) -> None:
        taken = await self._shard.take(ids, self._backend, begins=begins, batch=self._number)
        self.open.update(taken.ids)
        self.now_s, self._taken_at = taken.now_s, time.perf_counter()
        tickets, gone, late = await self._cache.read(taken.ids)
        self.busy += taken.busy + late
        if gone:
            await self._shard.deindex(gone, only_ended=True)
            self.open.difference_update(gone)
        self.tickets += tickets

    def settle(self, ids: Iterable[str]) -> None:
        """These are assigned, or were given back with the step that could not assign them."""
        self.open.difference_update(ids)

    async def release(self, ids: set[str]) -> None:
        """Let others match those of them that are still open."""
        ids = ids & self.open
        if ids:
            await self._shard.release(list(ids))
            self.open -= ids
            self.released += len(ids)

    async def let_go(self) -> bool:
        """Give back whatever is still open. Whether that could be done."""
        try:
            # Also when we are being cancelled: nobody else knows that these could be matched.
            await asyncio.shield(self.release(self.open))
        except (StoreError, TicketsLocked, asyncio.CancelledError) as error:
            log.warning("tickets were not given back", extra={"tickets": len(self.open), "error": repr(error)})
            return False
        self._shard.forget_held(self._backend, self._number)
        return True
