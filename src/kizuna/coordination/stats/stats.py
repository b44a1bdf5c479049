"""Stats: counters and histograms by day and by hour, that any number of processes add to.

    await k.stats.count("issues", "completed")          poppo:stats:issues:daily:2025-06-19    completed 57
    await k.stats.observe("issues", "took_ms", 12.5)    poppo:stats:issues:hourly              2025-06-19T13 completed 4

Which day and which hour it is, the server says: a caller names the quarter of an hour that it believes in, and if the
server's clock is elsewhere, nothing is written and the server's time comes back.
"""

from __future__ import annotations

import math
from asyncio import gather
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kizuna.clock import Clock, SystemClock
from kizuna.coordination.days import Hour, days_between, hour_at, label_at, labels_between, zone_named
from kizuna.coordination.keys import STATS, STATS_FLUSHES, STATS_OF_DATE
from kizuna.coordination.roots import roots_of
from kizuna.coordination.stats.gathering import Add, Gathering
from kizuna.coordination.stats.histograms import Figures, number_of
from kizuna.coordination.stats.tallies import Tally, counting, observing
from kizuna.errors import StoreError, WrongValue
from kizuna.store.scanning import names_of_all
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from datetime import tzinfo

    from kizuna.store.client import Store
    from kizuna.store.keys import Roots

DAILY, HOURLY = "daily", "hourly"
# A flush is repeated for seconds after an answer was lost; this is how long the server knows it.
FLUSH_KNOWN_S = 3_600
# Whoever asks for more days or hours than this has mistaken a unit.
MOST_PERIODS = 20_000
_REMOVED_AT_ONCE = 500

add_stats = Script.load(__package__, "add_stats")


class Day(NamedTuple):
    day: date
    figures: Figures


class HourOfDay(NamedTuple):
    hour: str
    """Its label, `2025-06-19T13`, in the time zone of the settings."""
    figures: Figures


class Stats:
    """`k.stats`. What is added is in the figures of its day and of its hour, both or neither."""

    def __init__(self, store: Store, *, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._hour: Hour | None = None

    async def count(self, category: str, counter: str, by: int | float = 1) -> None:
        """Add to a counter. It is sent once: after OutcomeUnknown it may have been counted, or not."""
        await self._add_or_raise(category, [counting(counter, by)])

    async def observe(self, category: str, name: str, value: float) -> None:
        """Add an observation, 0 or more, to a histogram. It is sent once, like `count`."""
        await self._add_or_raise(category, observing(name, value))

    def gathering(self, *, every_s: float = 1.0) -> Gathering:
        """For hot paths: `async with k.stats.gathering() as stats:`, then `stats.count(…)` without await. Adds up in
        memory, and sends the sums so often; each of them counts once, also if its answer is lost."""
        return Gathering(Add(self._add, self._key_of_hours), every_s=every_s)

    async def days(self, category: str, first: date | None = None, last: date | None = None) -> list[Day]:
        """Each day from the first to the last, also where nothing was counted; by default, those that are kept."""
        last = last or await self.today()
        first = first or last - timedelta(days=math.ceil(self._kept_s / 86_400) - 1)
        _check_many((last - first).days)
        wanted = list(days_between(first, last))
        replies = await gather(*(self._store.call("HGETALL", self._key_of_day(category, day)) for day in wanted))
        return [Day(day, Figures.read(_numbers(reply))) for day, reply in zip(wanted, replies, strict=True)]

    async def hours(
        self, category: str, first: datetime | None = None, last: datetime | None = None
    ) -> list[HourOfDay]:
        """Each hour from the one that `first` lies in to that of `last`; by default, the last 24."""
        last = last or datetime.fromtimestamp(await self._store.time_s(), UTC)
        first = first or last - timedelta(hours=23)
        _check_many((last - first) / timedelta(hours=1))
        by_hour: dict[str, dict[str, int | float]] = {}
        for field, number in _numbers(await self._store.call("HGETALL", self._key_of_hours(category))).items():
            hour, _, name = field.partition(" ")
            by_hour.setdefault(hour, {})[name] = number
        labels = labels_between(first, last, self.zone)
        return [HourOfDay(label, Figures.read(by_hour.get(label, {}))) for label in labels]

    async def last_days(self, category: str, count: int) -> list[Day]:
        """So many days, today included."""
        today = await self.today()
        return await self.days(category, today - timedelta(days=count - 1), today)

    async def last_hours(self, category: str, count: int) -> list[HourOfDay]:
        """So many hours, this one included."""
        now = datetime.fromtimestamp(await self._store.time_s(), UTC)
        return await self.hours(category, now - timedelta(hours=count - 1), now)

    async def today(self) -> date:
        """By the server's clock, in the time zone of the settings."""
        return hour_at(await self._store.time_s(), self.zone).day

    async def totals(self, category: str, first: date | None = None, last: date | None = None) -> Figures:
        """All those days together."""
        total = Figures()
        for _, figures in await self.days(category, first, last):
            total.merge(figures)
        return total

    async def categories(self) -> list[str]:
        """Everything that something was counted in, also by others, in order."""
        found = {names["category"] async for names in names_of_all(self._store, self._roots, STATS)}
        found |= {names["category"] async for names in names_of_all(self._store, self._roots, STATS_OF_DATE)}
        return sorted(found)

    @cached_property
    def zone(self) -> tzinfo:
        """Where days begin and end."""
        return zone_named(self._store.settings.coordination.time_zone)

    # -- inside -----------------------------------------------------------------------------------------

    async def _add(self, category: str, tallies: Sequence[Tally], flush: str = "") -> list[StoreError]:
        """Add several in one step. With an id, a repetition of the same within an hour adds nothing. Returns what is
        wrong with some of them, where others have written something that is no number; the rest is added."""
        named = [tally._asdict() for tally in tallies]
        while True:
            hour = self._hour or self._take_hour(self._clock.now())
            results = await add_stats.rows(self._store, named, **self._names(category, hour, flush))
            told = next((result[1] for result in results if isinstance(result, list)), None)
            if told is None:
                break
            self._take_hour(told)
        if b"new hour" in results:
            await self._remove_old_hours(category, hour)
        return [result for result in results if isinstance(result, StoreError)]

    @cached_property
    def _roots(self) -> Roots:
        return roots_of(self._store)

    @property
    def _kept_s(self) -> int:
        return self._store.settings.kept.stats_s

    async def _add_or_raise(self, category: str, tallies: Sequence[Tally]) -> None:
        for error in await self._add(category, tallies):
            raise error

    def _take_hour(self, now_s: float) -> Hour:
        self._hour = hour_at(now_s, self.zone)
        return self._hour

    def _names(self, category: str, hour: Hour, flush: str) -> dict[str, Any]:
        return {
            "daily": self._key_of_day(category, hour.day),
            "hourly": self._key_of_hours(category),
            "flushes": STATS_FLUSHES.build(self._roots.of(category), category=category),
            "from_s": hour.from_s,
            "until_s": hour.until_s,
            "hour": hour.label,
            "keep_s": self._kept_s,
            "flush": flush,
            "known_ms": FLUSH_KNOWN_S * 1000,
        }

    def _key_of_day(self, category: str, day: date) -> str:
        return STATS_OF_DATE.build(self._roots.of(category), category=category, period=DAILY, date=day.isoformat())

    def _key_of_hours(self, category: str) -> str:
        return STATS.build(self._roots.of(category), category=category, period=HOURLY)

    async def _remove_old_hours(self, category: str, hour: Hour) -> None:
        """Done by whoever is first in a new hour. Were it to die meanwhile, the first in the next hour does it."""
        key, oldest = self._key_of_hours(category), label_at(hour.from_s - self._kept_s, self.zone).encode()
        fields = await self._store.call("HKEYS", key)
        old = [field for field in fields if b" " in field and field < oldest]
        for start in range(0, len(old), _REMOVED_AT_ONCE):
            await self._store.call("HDEL", key, *old[start : start + _REMOVED_AT_ONCE])


def _check_many(periods: float) -> None:
    if periods > MOST_PERIODS:
        raise WrongValue("the range", f"{periods:.0f} days or hours long", f"{MOST_PERIODS} at most")


def _numbers(reply: dict[bytes, bytes]) -> dict[str, int | float]:
    """Of a hash, all that are numbers: others may keep something besides."""
    named = ((name.decode(errors="replace"), number_of(value)) for name, value in reply.items())
    return {name: number for name, number in named if number is not None}
