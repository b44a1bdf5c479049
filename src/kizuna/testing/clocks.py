"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class MovableClock:
    """A `kizuna.clock.Clock`. Sleepers wake in the order of their times, each at its own time."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now
        self._order = itertools.count()  # two sleepers with one time wake in the order they came
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    @property
    def sleepers(self) -> int:
        """How many wait for this clock: what a test waits for before it moves the time."""
        return sum(not sleeper.done() for _, _, sleeper in self._sleepers)

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return await asyncio.sleep(0)
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), sleeper))
        return await sleeper

    async def advance(self, seconds: float) -> None:
        """Move the time. Returns when all who were to wake have run up to their next real wait, also those
        that went to sleep again for less than what was left."""
        ends_at = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= ends_at:
            wakes_at, _, sleeper = heapq.heappop(self._sleepers)
            if sleeper.done():  # cancelled
                continue
            self._now = max(self._now, wakes_at)
            sleeper.set_result(None)
            await _let_others_run()
        self._now = ends_at


async def _let_others_run() -> None:
    # One turn of the loop wakes the sleeper's task, and each layer of tasks or futures above it needs one
    # more; twenty are beyond what code does between two sleeps, and cost microseconds.
    for _ in range(20):
        await asyncio.sleep(0)
