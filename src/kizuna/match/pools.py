"""Pools and profiles: which tickets are for whom. Does no I/O.

The edges are those of Open Match: a range has both ends unless one is excluded, NaN is in no range, what a ticket does
not have is in no pool that asks for it, and times are strictly before or after. A ticket that does not say when it was
made passes every time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from kizuna.errors import WrongValue
from kizuna.match import values
from kizuna.match.openmatch import messages_pb2

if TYPE_CHECKING:
    from kizuna.match.tickets import Searchable
    from kizuna.match.values import Value

Test = Callable[[Any], bool]

BY_AGE = attrgetter("created_ns", "id")
"""Sorts tickets and backfills, the oldest first."""

_EXCLUDE = {"none": 0, "min": 1, "max": 2, "both": 3}
_UNKNOWN = "unknown"
_LEAST_S, _MOST_S = -62_135_596_800, 253_402_300_799


@dataclass(frozen=True)
class DoubleRange:
    """A number from `min` to `max`; `exclude` says which end does not belong to it: none, min, max or both."""

    arg: str
    min: float = -math.inf
    max: float = math.inf
    exclude: str = "none"

    def __post_init__(self) -> None:
        _check_text("the name of a number", self.arg)
        for end in (self.min, self.max):
            if not isinstance(end, int | float):
                raise WrongValue(f"an end of the range of {self.arg}", repr(end), "a number")
        if self.exclude not in _EXCLUDE and self.exclude != _UNKNOWN:
            raise WrongValue("exclude", repr(self.exclude), "none, min, max or both")

    def takes(self, doubles: Mapping[str, float]) -> bool:
        value = doubles.get(self.arg)
        if value is None or value != value or self.min != self.min or self.max != self.max:
            return False
        if self.exclude == "none":
            return self.min <= value <= self.max
        if self.exclude == "min":
            return self.min < value <= self.max
        if self.exclude == "max":
            return self.min <= value < self.max
        return self.exclude != "both" or self.min < value < self.max

    def to_message(self) -> messages_pb2.DoubleRangeFilter:
        exclude = _EXCLUDE.get(self.exclude)
        if exclude is None:
            raise WrongValue("exclude", "a number that nobody knows", "none, min, max or both")
        return messages_pb2.DoubleRangeFilter(
            double_arg=self.arg,
            min=self.min,
            max=self.max,
            exclude=exclude,  # type: ignore[arg-type]
        )

    @classmethod
    def of(cls, message: messages_pb2.DoubleRangeFilter) -> DoubleRange:
        # A number that nobody knows excludes nothing and includes everything, as in Open Match.
        names = {number: name for name, number in _EXCLUDE.items()}
        return cls(message.double_arg, message.min, message.max, names.get(message.exclude, _UNKNOWN))


@dataclass(frozen=True)
class Pool:
    """The tickets that pass all of this. Times are in seconds since the epoch; kept in nanoseconds, as tickets have.
    WrongValue for what no ticket could be compared with."""

    name: str
    tags: tuple[str, ...] = ()
    strings: tuple[tuple[str, str], ...] = ()
    doubles: tuple[DoubleRange, ...] = ()
    created_before_ns: int | None = None
    created_after_ns: int | None = None

    def __init__(
        self,
        name: str,
        *,
        tags: Iterable[str] = (),
        strings: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        doubles: Iterable[DoubleRange] = (),
        created_before: float | None = None,
        created_after: float | None = None,
    ) -> None:
        if isinstance(tags, str):
            raise WrongValue("tags", repr(tags), "a list of texts")
        vars(self).update(
            name=name,
            tags=tuple(tags),
            strings=_pairs(strings),
            doubles=tuple(doubles),
            created_before_ns=_in_ns("created_before", created_before),
            created_after_ns=_in_ns("created_after", created_after),
        )
        for text in (self.name, *self.tags, *(text for pair in self.strings for text in pair)):
            _check_text(f"what pool {name} asks for", text)
        for range_ in self.doubles:
            if not isinstance(range_, DoubleRange):
                raise WrongValue("doubles", repr(range_), "a list of DoubleRange")

    def takes(self, ticket: Searchable) -> bool:
        return all(test(ticket) for test in self._tests)

    def of_all(self, tickets: Iterable[Any]) -> list[Any]:
        """Those of the tickets that are in this pool, in their order."""
        tests = self._tests
        if not tests:
            return list(tickets)
        if len(tests) == 1:
            return list(filter(tests[0], tickets))
        return [ticket for ticket in tickets if all(test(ticket) for test in tests)]

    @cached_property
    def _tests(self) -> tuple[Test, ...]:
        tests: list[Test] = []
        if self.created_before_ns is not None or self.created_after_ns is not None:
            tests.append(self._is_in_time)
        tests += [_tag_test(tag) for tag in self.tags]
        tests += [_string_test(arg, value) for arg, value in self.strings]
        tests += [_range_test(range_) for range_ in self.doubles]
        return tuple(tests)

    def _is_in_time(self, ticket: Searchable) -> bool:
        if not ticket.message.HasField("create_time"):
            return True
        before, after = self.created_before_ns, self.created_after_ns
        created = ticket.created_ns
        return (before is None or created < before) and (after is None or created > after)

    def to_message(self) -> messages_pb2.Pool:
        message = messages_pb2.Pool(name=self.name)
        message.double_range_filters.extend(range_.to_message() for range_ in self.doubles)
        for arg, value in self.strings:
            message.string_equals_filters.add(string_arg=arg, value=value)
        for tag in self.tags:
            message.tag_present_filters.add(tag=tag)
        if self.created_before_ns is not None:
            message.created_before.FromNanoseconds(self.created_before_ns)
        if self.created_after_ns is not None:
            message.created_after.FromNanoseconds(self.created_after_ns)
        return message

    @classmethod
    def of(cls, message: messages_pb2.Pool) -> Pool:
        """WrongValue for a time that there is not."""
        pool = cls(
            message.name,
            tags=[one.tag for one in message.tag_present_filters],
            strings=[(one.string_arg, one.value) for one in message.string_equals_filters],
            doubles=[DoubleRange.of(one) for one in message.double_range_filters],
        )
        # Not by way of seconds, which as a float have lost the last digits.
        before_ns, after_ns = _time_ns(message, "created_before"), _time_ns(message, "created_after")
        vars(pool).update(created_before_ns=before_ns, created_after_ns=after_ns)
        return pool


@dataclass(frozen=True)
class Profile:
    """A kind of match, and the pools that it is made of."""

    name: str
    pools: tuple[Pool, ...] = ()
    extensions: Mapping[str, Value] = field(default_factory=dict)

    def __init__(self, name: str, pools: Iterable[Pool] = (), extensions: Mapping[str, Value] | None = None) -> None:
        _check_text("the name of a profile", name)
        pools = tuple(pools)
        if not all(isinstance(pool, Pool) for pool in pools):
            raise WrongValue(f"pools of profile {name}", repr(pools), "a list of Pool")
        vars(self).update(name=name, pools=pools, extensions=dict(extensions or {}))

    def to_message(self) -> messages_pb2.MatchProfile:
        message = messages_pb2.MatchProfile(name=self.name, pools=[pool.to_message() for pool in self.pools])
        if self.extensions:
            values.pack_into(message.extensions, self.extensions)
        return message

    @classmethod
    def of(cls, message: messages_pb2.MatchProfile) -> Profile:
        return cls(message.name, [Pool.of(pool) for pool in message.pools], values.unpack(message.extensions))


def sorted_into(pools: Iterable[Pool], waiting: Sequence[Any]) -> dict[str, list[Any]]:
    """Of each pool those that are in it, in their order; what pools of one name take is put together, each of them
    once, the oldest first."""
    found: dict[str, list[Any]] = {}
    for pool in pools:
        taken = pool.of_all(waiting)
        if pool.name in found:
            distinct = {one.id: one for one in (*found[pool.name], *taken)}
            taken = sorted(distinct.values(), key=BY_AGE)
        found[pool.name] = taken
    return found


def _tag_test(tag: str) -> Test:
    return lambda ticket: tag in ticket.tags


def _string_test(arg: str, value: str) -> Test:
    return lambda ticket: ticket.strings.get(arg) == value


def _range_test(range_: DoubleRange) -> Test:
    return lambda ticket: range_.takes(ticket.doubles)


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise WrongValue(what, repr(value), "text")


def _pairs(strings: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    pairs = tuple(strings.items() if isinstance(strings, Mapping) else strings)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise WrongValue("strings", repr(pair), "a table of texts, or pairs of them")
    return pairs


def _in_ns(name: str, seconds: float | None) -> int | None:
    try:
        return None if seconds is None else round(seconds * 1e9)
    except (TypeError, ValueError, OverflowError):
        raise WrongValue(name, repr(seconds), "seconds since the epoch") from None


def _time_ns(message: messages_pb2.Pool, name: Literal["created_before", "created_after"]) -> int | None:
    if not message.HasField(name):
        return None
    time = message.created_before if name == "created_before" else message.created_after
    if not (_LEAST_S <= time.seconds <= _MOST_S and 0 <= time.nanos < 1_000_000_000):
        raise WrongValue(name, f"{time.seconds}s and {time.nanos}ns", "a time between the years 1 and 9999")
    return time.seconds * 1_000_000_000 + time.nanos


EVERYONE = Pool("everyone")
"""With nothing that one would have to pass."""
