"""Single additions to counters and histograms, checked, as the server is asked for them. This module does no I/O."""

from __future__ import annotations

from typing import NamedTuple

from kizuna.coordination.stats.histograms import Field, Histogram, bucket_of
from kizuna.errors import IllegalName, WrongValue
from kizuna.store.keys import LONGEST_NAME

MOST_AT_ONCE = 2**53
"""Beyond it, floats are no longer whole."""


class Tally(NamedTuple):
    kind: str
    """`add`, or `min` and `max` for what is kept only if it is less, or more."""
    field: str
    value: int | float


def counting(counter: str, by: int | float) -> Tally:
    """WrongValue for what is no number, IllegalName for a name that could be taken for something else."""
    check_name("counter", counter)
    if isinstance(by, bool) or not isinstance(by, int | float) or not abs(by) <= MOST_AT_ONCE:
        raise WrongValue(f"what is added to {counter}", repr(by), "a number, at most 2^53")
    return Tally("add", counter, by)


def observing(name: str, value: float) -> list[Tally]:
    check_name("histogram", name)
    return [Tally("add", str(Field(name, bucket_of(value))), 1), *_sum_and_ends(name, value, value, value)]


def all_of(name: str, histogram: Histogram) -> list[Tally]:
    buckets = [Tally("add", field, count) for field, count in histogram.fields(name).items()]
    return buckets + _sum_and_ends(name, histogram.sum, histogram.min, histogram.max)


def check_name(place: str, name: str) -> None:
    # A blank stands before the part of a histogram and behind the hour; `hour` is a field of its own.
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or " " in name or name == "hour":
        raise IllegalName(place, name[:40], "it is empty, too long, `hour`, or has blanks or control characters")


def _sum_and_ends(name: str, total: float, least: float, most: float) -> list[Tally]:
    values = (("add", "sum", total), ("min", "min", least), ("max", "max", most))
    return [Tally(kind, str(Field(name, part)), value) for kind, part, value in values]
