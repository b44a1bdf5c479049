"""Values in bins whose edges people like. Does no I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kizuna.match.simulation.outcome import Series

_NICE = (1, 2, 2.5, 5, 10)
# Below that, values count as nothing.
_LEAST = 1e-9


@dataclass(frozen=True)
class Histogram:
    width: float
    counts: list[int]
    """Of values from 0, from `width`, and so on."""
    beyond: int
    """Of values above all bins."""

    @property
    def total(self) -> int:
        return sum(self.counts) + self.beyond

    @property
    def end(self) -> float:
        return self.width * len(self.counts)

    def share(self, count: int) -> float:
        return count / self.total if self.total else 0.0

    @property
    def most(self) -> float:
        """The greatest share of any."""
        return self.share(max([*self.counts, self.beyond]))


def histogram(values: Sequence[float], bins: int = 12, *, like: Sequence[float] | None = None) -> Histogram:
    """In at most so many bins, that hold 99 of 100 values; with bins as `like` would have, if given."""
    width, number = _bins_for(Series(values if like is None else like), bins)
    counts = [0] * number
    beyond = 0
    for value in values:
        place = math.floor(max(value, 0.0) / width)
        if place < number:
            counts[place] += 1
        else:
            beyond += 1
    return Histogram(width, counts, beyond)


def _bins_for(values: Series, most: int) -> tuple[float, int]:
    end = values.percentile(99) if values else 0.0
    if end < _LEAST:
        return 1.0, 1
    width = nice(end / most)
    # A value on the edge is in the bin that begins there.
    if end / width >= most:
        width = nice(width * 1.1)
    return width, math.floor(end / width) + 1


def nice(least: float) -> float:
    """The next number from there on that is 1, 2, 2.5 or 5 with zeros."""
    power = 10.0 ** math.floor(math.log10(least))
    # Rounded: 0.1 + 0.2 would be a bin of its own otherwise.
    return next(step * power for step in _NICE if step * power >= least * (1 - 1e-9))


def short(value: float) -> str:
    """For people: three digits that count."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """Something is never told as nothing."""
    return "<1 %" if 0 < share < 0.005 else f"{share:.0%}".replace("%", " %")
