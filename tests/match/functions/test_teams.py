"""Teams of about equal skill, and parties that stay together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.match.functions.waiting_players import (
    NOW_S,
    PATIENT,
    ids_of,
    in_pools,
    oldest_first,
    parties,
    players,
    shape_of,
    ticket,
    waiting,
)

from kizuna.match.functions import parties as parties_of
from kizuna.match.functions import teams, teams_of
from kizuna.match.matches import Match
from kizuna.match.tickets import Ticket

SIZE, TEAMS = 2, 2
OPTIONS = {"window": 10.0, "widens_by_s": 1.0, "widest": 90.0}
two_against_two = teams(size=SIZE, teams=TEAMS, **OPTIONS)  # type: ignore[arg-type]

some_parties = st.lists(parties, max_size=9)


def size_of(one: Ticket) -> int:
    return int(one.doubles.get("party_size", 1))


def spread(tickets: Sequence[Ticket]) -> float:
    found = [one.doubles["skill"] for one in tickets]
    return max(found) - min(found)


def window(tickets: Sequence[Ticket]) -> float:
    """That of the oldest of them."""
    return min(10.0 + max(one.waited_s(NOW_S) for one in tickets), 90.0)


def is_a_match(tickets: Sequence[Ticket]) -> bool:
    return spread(tickets) <= window(tickets) and fills_both_teams([size_of(one) for one in tickets])


def fills_both_teams(found: list[int]) -> bool:
    half = any(sum(some) == SIZE for number in range(len(found)) for some in combinations(found, number))
    return sum(found) == SIZE * TEAMS and half


def possible(tickets: Sequence[Ticket]) -> list[tuple[Ticket, ...]]:
    """Every match that could be made of them."""
    return [some for number in range(2, 5) for some in combinations(tickets, number) if is_a_match(some)]


def strengths(match: Match) -> list[float]:
    return [sum(one.doubles["skill"] * size_of(one) for one in team) for team in teams_of(match)]


# for all players


@PATIENT
@given(tickets=st.lists(parties, max_size=20))
def test_teams_are_full_and_nobody_plays_twice(tickets: list[Ticket]) -> None:
    matches = list(two_against_two(waiting(tickets)))

    played = ids_of(matches)
    assert len(played) == len(set(played))
    for match in matches:
        told = teams_of(match)
        assert [sum(map(size_of, team)) for team in told] == [SIZE] * TEAMS
        assert sorted(one.id for team in told for one in team) == sorted(match.ticket_ids)


@PATIENT
@given(tickets=st.lists(parties, max_size=20))
def test_skills_are_within_the_window_of_the_oldest(tickets: list[Ticket]) -> None:
    for match in two_against_two(waiting(tickets)):
        assert spread(match.tickets) <= window(match.tickets)


@PATIENT
@given(tickets=some_parties)
def test_no_match_is_left_that_could_be_made_of_those_who_wait(tickets: list[Ticket]) -> None:
    played = ids_of(list(two_against_two(waiting(tickets))))

    assert possible([one for one in tickets if one.id not in played]) == []


@PATIENT
@given(tickets=some_parties)
def test_the_oldest_plays_if_there_is_any_match_for_them(tickets: list[Ticket]) -> None:
    matches = list(two_against_two(waiting(tickets)))

    for oldest in oldest_first(tickets)[:1]:
        could_play = [some for some in possible(tickets) if oldest in some]
        assert (oldest.id in ids_of(matches)) == bool(could_play)


@PATIENT
@given(tickets=st.lists(players, max_size=9))
def test_the_oldest_plays_with_those_nearest_to_them(tickets: list[Ticket]) -> None:
    matches = list(two_against_two(waiting(tickets)))

    for oldest in oldest_first(tickets)[:1]:
        could_play = [some for some in possible(tickets) if oldest in some]
        mine = [match for match in matches if oldest.id in match.ticket_ids]
        assert [spread(match.tickets) for match in mine] == sorted(map(spread, could_play))[:1]


@PATIENT
@given(tickets=st.lists(players, max_size=25))
def test_no_exchange_of_two_players_makes_the_teams_more_equal(tickets: list[Ticket]) -> None:
    for match in teams(size=3, teams=2, **OPTIONS)(waiting(tickets)):  # type: ignore[arg-type]
        (one_team, other_team), (one_sum, other_sum) = teams_of(match), strengths(match)
        apart = abs(one_sum - other_sum)
        for one in one_team:
            for other in other_team:
                moved = one.doubles["skill"] - other.doubles["skill"]
                assert abs(one_sum - other_sum - 2 * moved) >= apart - 1e-6 * (1 + apart)


@PATIENT
@given(tickets=st.lists(parties, max_size=20))
def test_nearer_skills_and_more_equal_teams_score_higher(tickets: list[Ticket]) -> None:
    for match in two_against_two(waiting(tickets)):
        one, other = strengths(match)
        assert match.score == pytest.approx(1 - (spread(match.tickets) + abs(one - other) / SIZE) / 180)
        assert match.score is not None
        assert 0 <= match.score <= 1


@PATIENT
@given(tickets=st.lists(parties, max_size=20), places=st.lists(st.integers(0, 2), min_size=20, max_size=20))
def test_matches_are_of_one_pool_each(tickets: list[Ticket], places: list[int]) -> None:
    given = in_pools(tickets, places)
    matches = list(two_against_two(given))

    assert len(ids_of(matches)) == len(set(ids_of(matches)))
    for match in matches:
        assert any(set(match.tickets) <= set(pool) for pool in given.pools.values())


@PATIENT
@given(tickets=st.lists(parties, max_size=20))
def test_the_same_players_get_the_same_matches(tickets: list[Ticket]) -> None:
    first, second = (shape_of(list(two_against_two(waiting(tickets)))) for _ in range(2))

    assert first == second


@PATIENT
@given(tickets=st.lists(parties, max_size=20))
def test_parties_fill_matches_whatever_their_skill(tickets: list[Ticket]) -> None:
    matches = list(parties_of(players=4)(waiting(tickets)))

    played = ids_of(matches)
    assert len(played) == len(set(played))
    assert [sum(map(size_of, match.tickets)) for match in matches] == [4] * len(matches)
    left = [size_of(one) for one in tickets if one.id not in played]
    assert not any(sum(some) == 4 for number in range(1, 5) for some in combinations(left, number))


# the particular ones


def test_the_window_widens_with_the_waiting_time_of_the_oldest() -> None:
    make = teams(size=1, teams=2, window=10, widens_by_s=1, widest=30)
    for waited_s, apart, is_made in [
        (0, 10, True),
        (0, 10.5, False),
        (5, 15, True),
        (5, 15.5, False),
        (500, 31, False),
    ]:
        found = list(make(waiting([ticket(waited_s=waited_s, skill=0), ticket(skill=apart)])))
        assert len(found) == is_made, (waited_s, apart)


def test_a_window_wider_than_the_widest_stays_as_it_is() -> None:
    make = teams(size=1, teams=2, window=50, widest=10)

    assert len(list(make(waiting([ticket(waited_s=60, skill=0), ticket(skill=50)])))) == 1


def test_parties_that_fit_in_only_one_way_are_seated_that_way() -> None:
    """Neither the nearest nor the largest first would fill both teams."""
    found = [
        ticket(skill=skill, party_size=size) for skill, size in [(50, 4), (50, 4), (48, 3), (47, 3), (53, 2), (54, 2)]
    ]
    [match] = teams(size=5, teams=2, window=100)(waiting(found))

    assert sorted(sorted(map(size_of, team)) for team in teams_of(match)) == [[2, 3], [2, 3]]


def test_a_ticket_that_cannot_be_seated_waits_and_holds_nobody_up() -> None:
    odd = [
        ticket(waited_s=99),
        ticket(waited_s=98, skill=float("nan")),
        ticket(waited_s=97, skill=float("inf")),
        ticket(waited_s=96, skill=5, party_size=3),
        ticket(waited_s=95, skill=5, party_size=0),
        ticket(waited_s=94, skill=5, party_size=1.5),
        ticket(waited_s=94, skill=5, party_size=float("nan")),
    ]
    good = [ticket(skill=5), ticket(skill=5), ticket(skill=5, party_size=2)]
    [match] = two_against_two(waiting([*odd, *good]))

    assert set(match.tickets) == set(good)


def test_the_skill_and_the_size_can_have_other_names() -> None:
    found = [ticket(mmr=1, crew=2), ticket(mmr=2, crew=2)]

    assert len(list(teams(size=2, teams=2, skill="mmr", party="crew")(waiting(found)))) == 1


def test_a_lobby_of_a_hundred_is_filled_with_parties() -> None:
    found = [ticket(waited_s=200 - number, party_size=number % 4 + 1) for number in range(50)]
    [match] = parties_of(players=100)(waiting(found))

    assert sum(map(size_of, match.tickets)) == 100
    assert oldest_first(found)[0] in match.tickets
    assert teams_of(match) == [list(match.tickets)]


def test_many_teams_are_filled_as_well() -> None:
    found = [ticket(skill=number, party_size=number % 3 + 1) for number in range(60)]
    made = list(teams(size=4, teams=10, window=1000)(waiting(found)))

    assert [[sum(map(size_of, team)) for team in teams_of(match)] for match in made] == [[4] * 10] * 3


def test_the_largest_skills_there_are_have_a_score() -> None:
    match, *rest = teams(size=2)(waiting([ticket(skill=1e308) for _ in range(4)]))

    assert (match.score, rest) == (1.0, [])
