"""Counting in hot paths: added up in memory, sent once a second, counted once.

    count, observe ──> open sums ──every second──> sums under way, with an id ──> add_stats
                                                   stay until the server has them

What was gathered and not sent is lost with the process: a second's worth after a kill -9.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Self

from kizuna.coordination.stats.histograms import Histogram
from kizuna.coordination.stats.tallies import MOST_AT_ONCE, Tally, all_of, check_name
from kizuna.errors import StoreError, WrongValue
from kizuna.store.repeating import until_known

log = logging.getLogger("kizuna.coordination")

# Of one call: a script holds up the server while it runs.
_MOST_ROWS = 1_000


class Add(NamedTuple):
    """How sums get to the server, and which categories there may be."""

    send: Callable[[str, Sequence[Tally], str], Awaitable[list[StoreError]]]
    check_category: Callable[[str], object]


class _Sums:
    """Of one category."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.histograms: dict[str, Histogram] = {}

    def tallies(self) -> list[Tally]:
        counted = [Tally("add", counter, by) for counter, by in self.counters.items() if by]
        return counted + [tally for name, histogram in self.histograms.items() for tally in all_of(name, histogram)]


class _UnderWay(NamedTuple):
    id: str
    category: str
    tallies: list[Tally]


class Gathering:
    """What `k.stats.gathering()` returns: enter it, count, and leave it. Leaving sends what is left, and raises what
    keeps the server from having it."""

    def __init__(self, add: Add, *, every_s: float = 1.0) -> None:
        self._add, self._every_s = add, every_s
        self._open: dict[str, _Sums] = {}
        self._under_way: deque[_UnderWay] = deque()
        self._turn = asyncio.Lock()
        self._repeating: asyncio.Task[None]

    def count(self, category: str, counter: str, by: int = 1) -> None:
        """Whole numbers only: their sums are exact in any order."""
        counters = self._sums(category).counters
        if counter not in counters:
            check_name("counter", counter)
        if type(by) is not int or abs(by) > MOST_AT_ONCE:
            raise WrongValue(f"what is added to {counter}", repr(by), "a whole number, at most 2^53")
        counters[counter] += by

    def observe(self, category: str, name: str, value: float) -> None:
        histograms = self._sums(category).histograms
        if name not in histograms:
            check_name("histogram", name)
            histograms[name] = Histogram()
        histograms[name].observe(value)

    async def flush(self) -> None:
        """Have the server know all that was counted until now. Raises the first error; what it did not get is kept, and
        sent again the next time."""
        async with self._turn:
            # Those that an answer is missing for go first, as they are: the server may know their id.
            await self._send_all()
            self._close_sums()
            await self._send_all()

    async def __aenter__(self) -> Self:
        self._repeating = asyncio.create_task(self._repeat(), name="kizuna stats")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._repeating.cancel()
        await asyncio.wait([self._repeating])
        await self.flush()

    def _sums(self, category: str) -> _Sums:
        sums = self._open.get(category)
        if sums is None:
            self._add.check_category(category)
            sums = self._open[category] = _Sums()
        return sums

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.flush()
            except StoreError as error:
                log.warning("stats not sent yet", extra={"error": str(error)})

    def _close_sums(self) -> None:
        for category, sums in self._open.items():
            tallies = sums.tallies()
            for start in range(0, len(tallies), _MOST_ROWS):
                part = tallies[start : start + _MOST_ROWS]
                self._under_way.append(_UnderWay(secrets.token_hex(8), category, part))
        self._open = {}

    async def _send_all(self) -> None:
        while self._under_way:
            await self._send(self._under_way[0])
            self._under_way.popleft()

    async def _send(self, sums: _UnderWay) -> None:
        errors = await until_known(lambda: self._add.send(sums.category, sums.tallies, sums.id))
        for error in errors:
            # Nobody can add to it, now or later: it is told, and not tried again.
            log.warning("stats not added", extra={"category": sums.category, "error": str(error)})
