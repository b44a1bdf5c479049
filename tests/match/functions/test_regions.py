"""Matches where everybody's latency is within what they put up with."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.match.functions.waiting_players import (
    NOW_S,
    PATIENT,
    far_players,
    ids_of,
    in_pools,
    shape_of,
    ticket,
    waiting,
)

from kizuna.match.functions import one_against_one, regions, teams
from kizuna.match.tickets import Ticket

make = regions(limit_ms=50, widens_by_s=1, widest_ms=120)
some = st.lists(far_players, max_size=14)


def limit_ms(one: Ticket) -> float:
    return min(50 + one.waited_s(NOW_S), 120)


def accepted(one: Ticket) -> set[str]:
    return {arg.removeprefix("latency.") for arg, ms in one.doubles.items() if ms <= limit_ms(one)}


@PATIENT
@given(tickets=some, places=st.lists(st.integers(0, 2), min_size=14, max_size=14))
def test_nobody_plays_twice_or_where_it_is_too_far(tickets: list[Ticket], places: list[int]) -> None:
    given = in_pools(tickets, places)
    matches = list(make(given))

    assert len(ids_of(matches)) == len(set(ids_of(matches)))
    for match in matches:
        region = str(match.extensions["region"])
        assert all(region in accepted(one) for one in match.tickets)
        assert match.extensions["latency_ms"] == max(one.doubles[f"latency.{region}"] for one in match.tickets)
        assert any(set(match.tickets) <= set(pool) for pool in given.pools.values())


@PATIENT
@given(tickets=some)
def test_no_two_wait_who_could_play_somewhere(tickets: list[Ticket]) -> None:
    played = ids_of(list(make(waiting(tickets))))
    left = [one for one in tickets if one.id not in played]

    for region in ("eu", "us", "asia"):
        assert len([one for one in left if region in accepted(one)]) <= 1


@PATIENT
@given(tickets=some)
def test_the_same_players_get_the_same_regions(tickets: list[Ticket]) -> None:
    first, second = (shape_of(list(make(waiting(tickets)))) for _ in range(2))

    assert first == second


def test_everybody_plays_at_home_if_they_can() -> None:
    eu = [ticket(waited_s=waited_s, latency_eu=20, latency_us=90) for waited_s in (100, 60)]
    us = [ticket(waited_s=waited_s, latency_eu=90, latency_us=20) for waited_s in (90, 50)]
    matches = list(make(waiting([*eu, *us])))

    assert {match.extensions["region"]: set(match.tickets) for match in matches} == {"eu": set(eu), "us": set(us)}


def test_who_is_alone_at_home_plays_abroad_once_they_put_up_with_it() -> None:
    here, there = ticket(waited_s=39, latency_eu=20, latency_us=90), ticket(latency_eu=110, latency_us=20)
    assert list(make(waiting([here, there]))) == []

    here = ticket(waited_s=40, latency_eu=20, latency_us=90)
    [match] = make(waiting([here, there]))
    assert (match.extensions["region"], match.extensions["latency_ms"]) == ("us", 90)


def test_the_other_function_decides_who_plays_with_whom() -> None:
    found = [ticket(skill=skill, latency_eu=20) for skill in (0, 1000, 10, 1010)]
    matches = list(regions(teams(size=1, teams=2, window=50))(waiting(found)))

    assert sorted(abs(a.doubles["skill"] - b.doubles["skill"]) for a, b in (match.tickets for match in matches)) == [
        10,
        10,
    ]
    assert all(match.extensions.keys() == {"teams", "region", "latency_ms"} for match in matches)


def test_latencies_can_have_another_name() -> None:
    found = [ticket(ping_eu=20), ticket(ping_eu=30)]

    assert list(regions(one_against_one())(waiting(found))) == []
    [match] = regions(one_against_one(), latency="ping_")(waiting(found))
    assert match.extensions["region"] == "eu"
