"""Which tickets are in a pool, without a server."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.match.filter_cases import Case, cases, ranged, ticket

from kizuna.errors import WrongValue
from kizuna.match.openmatch import messages_pb2
from kizuna.match.pools import DoubleRange, Pool, Profile
from kizuna.match.tickets import Ticket, new_ticket

NAMES = st.text(min_size=1, max_size=5)
NUMBERS = st.floats(allow_nan=True)
RANGES = st.builds(DoubleRange, NAMES, NUMBERS, NUMBERS, st.sampled_from(["none", "min", "max", "both"]))
POOLS = st.builds(
    Pool,
    NAMES,
    tags=st.lists(NAMES, max_size=3),
    strings=st.dictionaries(NAMES, NAMES, max_size=3),
    doubles=st.lists(RANGES, max_size=3),
    created_before=st.none() | st.integers(0, 4_000_000_000).map(float),
    created_after=st.none() | st.integers(0, 4_000_000_000).map(float),
)
TICKETS = st.builds(
    lambda **fields: Ticket(new_ticket(**fields)),
    tags=st.lists(NAMES, max_size=3),
    strings=st.dictionaries(NAMES, NAMES, max_size=3),
    doubles=st.dictionaries(NAMES, NUMBERS, max_size=3),
)


def made_now(message: messages_pb2.Ticket) -> Ticket:
    now = messages_pb2.Ticket()
    now.CopyFrom(message)
    now.create_time.FromNanoseconds(time.time_ns())
    return Ticket(now)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_pool_takes_what_open_match_would(case: Case) -> None:
    pool, made = Pool.of(case.pool), made_now(case.ticket)

    assert pool.takes(made) == case.is_in
    assert pool.of_all([made]) == ([made] if case.is_in else [])


def test_every_row_of_the_table_has_a_name_of_its_own() -> None:
    names = [case.name for case in cases()]

    assert len(names) == len(set(names))


def test_a_ticket_that_does_not_say_when_it_was_made_passes_every_time() -> None:
    silent = Ticket(messages_pb2.Ticket())

    assert Pool("past", created_before=1.0).takes(silent)
    assert Pool("future", created_after=time.time() + 3600).takes(silent)


@pytest.mark.parametrize(("offset_ns", "is_in"), [(-1, False), (0, False), (1, True)])
def test_times_are_strictly_after(offset_ns: int, is_in: bool) -> None:
    made, pool = at(1_000_000_000_000_000_000 + offset_ns), messages_pb2.Pool()
    pool.created_after.FromNanoseconds(1_000_000_000_000_000_000)

    assert Pool.of(pool).takes(made) is is_in


@pytest.mark.parametrize(("offset_ns", "is_in"), [(-1, True), (0, False), (1, False)])
def test_times_are_strictly_before(offset_ns: int, is_in: bool) -> None:
    made, pool = at(1_000_000_000_000_000_000 + offset_ns), messages_pb2.Pool()
    pool.created_before.FromNanoseconds(1_000_000_000_000_000_000)

    assert Pool.of(pool).takes(made) is is_in


def at(created_ns: int) -> Ticket:
    message = messages_pb2.Ticket()
    message.create_time.FromNanoseconds(created_ns)
    return Ticket(message)


def test_a_way_of_excluding_that_nobody_knows_checks_nothing_but_that_there_is_a_number() -> None:
    pool = Pool.of(ranged(0, 1, 7))  # type: ignore[arg-type]

    assert pool.takes(Ticket(ticket(doubles={"field": 99})))
    assert not pool.takes(Ticket(ticket(doubles={"field": math.nan})))
    assert not pool.takes(Ticket(ticket()))


@pytest.mark.parametrize("name", ["created_before", "created_after"])
@pytest.mark.parametrize(
    ("seconds", "nanos"), [(0, -1), (0, 1_000_000_000), (-62_135_596_801, 0), (253_402_300_800, 0)]
)
def test_a_time_that_there_is_not_is_refused(name: str, seconds: int, nanos: int) -> None:
    message = messages_pb2.Pool()
    time_ = getattr(message, name)
    time_.seconds, time_.nanos = seconds, nanos

    with pytest.raises(WrongValue) as refused:
        Pool.of(message)

    assert refused.value.name == name


@pytest.mark.parametrize(
    "make",
    [
        lambda: Pool("p", tags="abc"),
        lambda: Pool("p", tags=[1]),  # type: ignore[list-item]
        lambda: Pool(None),  # type: ignore[arg-type]
        lambda: Pool("p", strings=["mode"]),  # type: ignore[list-item]
        lambda: Pool("p", strings={"level": 3}),  # type: ignore[arg-type]
        lambda: Pool("p", doubles={"skill": 1500}),  # type: ignore[dict-item]
        lambda: Pool("p", created_before="now"),  # type: ignore[arg-type]
        lambda: Pool("p", created_after=math.nan),
        lambda: DoubleRange("x", exclude="most"),
        lambda: DoubleRange("x", min="1"),  # type: ignore[arg-type]
        lambda: Profile("p", "pool"),  # type: ignore[arg-type]
        lambda: Profile(None, [Pool("p")]),  # type: ignore[arg-type]
        # What the wire may say, and Open Match lets pass, has no name here.
        lambda: DoubleRange.of(messages_pb2.DoubleRangeFilter(exclude=7)).to_message(),  # type: ignore[arg-type]
    ],
)
def test_what_no_pool_can_ask_for_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(WrongValue):
        make()


@given(pool=POOLS, waiting=st.lists(TICKETS, max_size=5))
def test_a_pool_takes_the_same_after_a_trip_over_the_wire(pool: Pool, waiting: list[Ticket]) -> None:
    sent = Pool.of(messages_pb2.Pool.FromString(pool.to_message().SerializeToString()))

    assert sent.of_all(waiting) == pool.of_all(waiting)
    assert pool.of_all(waiting) == [one for one in waiting if pool.takes(one)]


def test_a_profile_keeps_its_pools_and_what_stands_beside_them() -> None:
    profile = Profile("1v1", [Pool("low"), Pool("high", tags=["pro"])], {"mode": "ranked", "size": 2})

    sent = Profile.of(messages_pb2.MatchProfile.FromString(profile.to_message().SerializeToString()))

    assert sent == profile
