"""Which tickets are in which pools, by Open Match: every edge of every filter."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kizuna.match.openmatch import messages_pb2

INF, NAN = math.inf, math.nan
HOUR_S = 3600
NONE = messages_pb2.DoubleRangeFilter.NONE
ALL = {
    "none": NONE,
    "min": messages_pb2.DoubleRangeFilter.MIN,
    "max": messages_pb2.DoubleRangeFilter.MAX,
    "both": messages_pb2.DoubleRangeFilter.BOTH,
}


class Case(NamedTuple):
    name: str
    ticket: messages_pb2.Ticket
    """Made now."""
    pool: messages_pb2.Pool
    is_in: bool


def ticket(
    *,
    doubles: Mapping[str, float] | None = None,
    strings: Mapping[str, str] | None = None,
    tags: Iterable[str] = (),
) -> messages_pb2.Ticket:
    fields = messages_pb2.SearchFields(double_args=doubles, string_args=strings, tags=tags)
    return messages_pb2.Ticket(search_fields=fields)


def ranged(minimum: float, maximum: float, exclude: messages_pb2.DoubleRangeFilter.Exclude = NONE) -> messages_pb2.Pool:
    one = messages_pb2.DoubleRangeFilter(double_arg="field", min=minimum, max=maximum, exclude=exclude)
    return messages_pb2.Pool(double_range_filters=[one])


def equal(value: str) -> messages_pb2.Pool:
    return messages_pb2.Pool(string_equals_filters=[messages_pb2.StringEqualsFilter(string_arg="field", value=value)])


def tagged(*tags: str) -> messages_pb2.Pool:
    return messages_pb2.Pool(tag_present_filters=[messages_pb2.TagPresentFilter(tag=tag) for tag in tags])


def created(*, before_s: float | None = None, after_s: float | None = None) -> messages_pb2.Pool:
    """From now."""
    pool = messages_pb2.Pool()
    if before_s is not None:
        pool.created_before.FromSeconds(round(time.time() + before_s))
    if after_s is not None:
        pool.created_after.FromSeconds(round(time.time() + after_s))
    return pool


def together(value: float, text: str, tag: str) -> messages_pb2.Pool:
    """Takes a ticket of 5, "value" and "tag" if asked for these."""
    pool = ranged(value, value)
    pool.MergeFrom(equal(text))
    pool.MergeFrom(tagged(tag))
    return pool


def cases() -> list[Case]:
    return [*_included(), *_excluded()]


def _included() -> Iterator[Case]:
    whole = ticket(doubles={"field": 5}, strings={"field": "value"}, tags=["tag"])
    yield Case("no filters and no fields", messages_pb2.Ticket(), messages_pb2.Pool(), True)
    yield Case("no filters", whole, messages_pb2.Pool(), True)
    for name, exclude in ALL.items():
        yield _number(f"5 in 0 to 10 without {name}", 5, ranged(0, 10, exclude), True)
    for value, low, high, excludes in [
        (5, 5, 5, "none"),
        (INF, 0, INF, "none min"),
        (-INF, -INF, 0, "none max"),
        (0, 0, 1, "none max"),
        (1, 0, 1, "none min"),
        (1, 0, 3, "both"),
        (2, 0, 3, "both"),
    ]:
        for name in excludes.split():
            yield _number(f"{value} in {low} to {high} without {name}", value, ranged(low, high, ALL[name]), True)
    yield Case("the same text", ticket(strings={"field": "value"}), equal("value"), True)
    yield Case("a tag", ticket(tags=["mytag"]), tagged("mytag"), True)
    yield Case("three tags, in any order", ticket(tags=["A", "B", "C"]), tagged("C", "A", "B"), True)
    yield Case("all kinds of filters", whole, together(5, "value", "tag"), True)
    yield Case("before an hour from now", messages_pb2.Ticket(), created(before_s=HOUR_S), True)
    yield Case("after an hour ago", messages_pb2.Ticket(), created(after_s=-HOUR_S), True)
    yield Case("between the two", messages_pb2.Ticket(), created(before_s=HOUR_S, after_s=-HOUR_S), True)


def _excluded() -> Iterator[Case]:
    nothing = messages_pb2.Ticket()
    yield Case("a range, and no fields", nothing, ranged(0, 10), False)
    yield Case("a text, and no fields", nothing, equal("value"), False)
    yield Case("a tag, and no fields", nothing, tagged("tag"), False)
    yield Case("a range, and another number", ticket(doubles={"other": 5}), ranged(0, 10), False)
    yield from _excluded_numbers()
    yield Case("other letters", ticket(strings={"field": "value"}), equal("VALUE"), False)
    yield Case("another text", ticket(strings={"other": "value"}), equal("value"), False)
    yield Case("a tag of other letters", ticket(tags=["mytag"]), tagged("MYTAG"), False)
    yield Case("one of three tags missing", ticket(tags=["A", "B", "C"]), tagged("A", "D", "C"), False)
    yield Case("before an hour ago", nothing, created(before_s=-HOUR_S), False)
    yield Case("after an hour from now", nothing, created(after_s=HOUR_S), False)
    yield Case("a window in the future", nothing, created(before_s=2 * HOUR_S, after_s=HOUR_S), False)
    yield Case("a window in the past", nothing, created(before_s=-HOUR_S, after_s=-2 * HOUR_S), False)
    whole = ticket(doubles={"field": 5}, strings={"field": "value"}, tags=["tag"])
    yield Case("all kinds, the number failing", whole, together(6, "value", "tag"), False)
    yield Case("all kinds, the text failing", whole, together(5, "other", "tag"), False)
    yield Case("all kinds, the tag failing", whole, together(5, "value", "other"), False)


def _excluded_numbers() -> Iterator[Case]:
    for value, low, high, excludes in [
        (5, 5, 5, "min max both"),
        (-1, 0, 10, "none min max both"),
        (11, 0, 10, "none min max both"),
        (0, NAN, 10, "none min max both"),
        (0, 0, NAN, "none min max both"),
        (0, NAN, NAN, "none min max both"),
        (NAN, 0, 10, "none min max both"),
        (NAN, -INF, INF, "none min max both"),
        (NAN, NAN, NAN, "none min max both"),
        (INF, 0, INF, "max both"),
        (-INF, -INF, 0, "min both"),
        (1, 0, 1, "max both"),
        (0, 0, 1, "min both"),
    ]:
        for name in excludes.split():
            yield _number(f"{value} in {low} to {high} without {name}", value, ranged(low, high, ALL[name]), False)


def _number(name: str, value: float, pool: messages_pb2.Pool, is_in: bool) -> Case:
    return Case(name, ticket(doubles={"field": value}), pool, is_in)
