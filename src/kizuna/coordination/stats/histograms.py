"""Histograms that many processes fill together: counts in fixed buckets, so that adding up is all there is to merging.

    bucket        0    …    10.37    11.31    12.34    …    inf
    holds         0         9.514    10.37    11.31         more than the last bound
                            < x ≤ 10.37 …

Each bound is 2^(1/8) times the one before, rounded to four digits, which everybody can write: a percentile is off by
less than 9.2 %. This module does no I/O.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kizuna.errors import WrongValue

# From a millionth to a billion: from microseconds in seconds to seconds in nanoseconds, and gigabytes in bytes.
_STEPS_PER_DOUBLING = 8
_FIRST, _LAST = -20 * _STEPS_PER_DOUBLING, 40 * _STEPS_PER_DOUBLING
BOUNDS = (0.0, *(float(f"{2 ** (step / _STEPS_PER_DOUBLING):.4g}") for step in range(_FIRST, _LAST + 1)), math.inf)
"""The upper bound of each bucket; a value belongs to the first that is not below it."""
WORST_RATIO = 1.0914
"""Between two bounds; between a percentile as told and the value that was observed there."""

_NAMES = tuple(f"<={bound:.4g}" for bound in BOUNDS)
_BOUND_OF = dict(zip(_NAMES, BOUNDS, strict=True))


class Field(NamedTuple):
    """One field of a hash: a counter has no part; of a histogram, each bucket, sum, min and max is one."""

    name: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.part}" if self.part else self.name


def read_field(text: str) -> Field:
    """`took_ms <=11.31` is a bucket of `took_ms`; what is not recognised is a counter, whatever it is called."""
    name, _, part = text.rpartition(" ")
    return Field(name, part) if name and (part in _BOUND_OF or part in ("sum", "min", "max")) else Field(text)


def bucket_of(value: float) -> str:
    """The part of the field that counts this value. WrongValue for what is negative, or no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise WrongValue("an observation", f"{value}", "a number that is 0 or more")
    return _NAMES[bisect_left(BOUNDS, value)]


@dataclass
class Histogram:
    """What was observed. All of it adds up, so the histogram of many processes is that of all they observed."""

    buckets: Counter[float] = field(default_factory=Counter)
    """How many there were, by the upper bound of their bucket."""
    sum: float = 0.0
    min: float = math.inf
    max: float = -math.inf

    @classmethod
    def of(cls, values: Iterable[float]) -> Histogram:
        histogram = cls()
        for value in values:
            histogram.observe(value)
        return histogram

    @property
    def count(self) -> int:
        return self.buckets.total()

    @property
    def mean(self) -> float:
        """nan if there is nothing."""
        return self.sum / self.count if self.count else math.nan

    def observe(self, value: float) -> None:
        self.buckets[_BOUND_OF[bucket_of(value)]] += 1
        self.sum += value
        self.min, self.max = min(self.min, value), max(self.max, value)

    def merge(self, other: Histogram) -> None:
        self.buckets.update(other.buckets)
        self.sum += other.sum
        self.min, self.max = min(self.min, other.min), max(self.max, other.max)

    def percentile(self, percent: float) -> float:
        """The value that so many percent of all are not above: the bound of its bucket, which is at most WORST_RATIO
        times the value itself, and never beyond the least and the greatest. nan if there is nothing."""
        if not 0 <= percent <= 100:
            raise WrongValue("a percentile", f"{percent:g}", "a number from 0 to 100")
        rank = max(1, math.ceil(self.count * percent / 100))
        for bound in sorted(self.buckets):
            rank -= self.buckets[bound]
            if rank <= 0:
                return self._within(bound)
        return math.nan

    def percentiles(self, *percents: float) -> dict[float, float]:
        return {percent: self.percentile(percent) for percent in percents or (50, 90, 99)}

    def fields(self, name: str) -> dict[str, int]:
        """The buckets as fields of a hash."""
        return {str(Field(name, f"<={bound:.4g}")): count for bound, count in self.buckets.items()}

    def _within(self, bound: float) -> float:
        # Whoever wrote the buckets without min and max, by hand, gets the bound itself.
        return max(self.min, min(bound, self.max)) if self.min <= self.max else bound


@dataclass
class Figures:
    """Counters and histograms by name: of one day, one hour, or all of them together."""

    counters: dict[str, int | float] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)

    @classmethod
    def read(cls, fields: Mapping[str, int | float]) -> Figures:
        figures = cls()
        for text, number in fields.items():
            figures._take(read_field(text), number)
        return figures

    def merge(self, other: Figures) -> None:
        for name, number in other.counters.items():
            self.counters[name] = self.counters.get(name, 0) + number
        for name, histogram in other.histograms.items():
            self.histograms.setdefault(name, Histogram()).merge(histogram)

    def _take(self, field: Field, number: int | float) -> None:
        if not field.part:
            self.counters[field.name] = number
            return
        histogram = self.histograms.setdefault(field.name, Histogram())
        if field.part in _BOUND_OF:
            histogram.buckets[_BOUND_OF[field.part]] = int(number)
        else:
            setattr(histogram, field.part, number)


def number_of(text: bytes | str) -> int | float | None:
    """A number as the server keeps it; None if it is something else."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
