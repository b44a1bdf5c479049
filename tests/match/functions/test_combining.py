"""Functions of functions, and functions by name."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.match.functions.waiting_players import PATIENT, ids_of, in_pools, players, ticket, waiting

from kizuna.errors import WrongValue
from kizuna.match.functions import READY, by_pool, function_of, in_turn, one_against_one, parties, teams, together
from kizuna.match.matches import Match, Waiting
from kizuna.match.tickets import Ticket


def skilled_first(waiting: Waiting) -> list[Match]:
    """One of people's own: each who is above 100 plays alone."""
    return [Match([one]) for one in waiting.tickets if one.doubles["skill"] > 100]


@PATIENT
@given(tickets=st.lists(players, max_size=12), places=st.lists(st.integers(0, 2), min_size=12, max_size=12))
def test_each_in_turn_gets_what_is_left(tickets: list[Ticket], places: list[int]) -> None:
    given = in_pools(tickets, places)
    matches = list(in_turn([skilled_first, one_against_one()])(given))
    alone = [match.tickets[0] for match in matches if len(match.tickets) == 1]

    assert len(ids_of(matches)) == len(set(ids_of(matches)))
    assert {one.id for one in alone} == {one.id for one in given.tickets if one.doubles["skill"] > 100}


@PATIENT
@given(tickets=st.lists(players, max_size=12), places=st.lists(st.integers(0, 2), min_size=12, max_size=12))
def test_pools_have_functions_of_their_own(tickets: list[Ticket], places: list[int]) -> None:
    given = in_pools(tickets, places)
    matches = list(by_pool({"1": parties(players=3), "0": one_against_one()})(given))

    assert len(ids_of(matches)) == len(set(ids_of(matches)))
    for match in matches:
        pool = {3: "1", 2: "0"}[len(match.tickets)]
        assert set(match.tickets) <= set(given.pools[pool])


def test_pools_that_are_not_named_wait() -> None:
    made = by_pool({"1": one_against_one()})(waiting([ticket(), ticket()], [ticket(), ticket()]))

    assert len(list(made)) == 1


def test_a_pool_that_there_is_not_is_told() -> None:
    with pytest.raises(WrongValue, match="a pool of by_pool cannot be 'eu'; expected one of 0, 1"):
        by_pool({"eu": one_against_one()})(waiting([], []))


def test_all_pools_together_are_one() -> None:
    one, other = ticket(waited_s=2), ticket(waited_s=1)
    assert list(one_against_one()(waiting([one], [other]))) == []
    [match] = together(one_against_one())(waiting([other], [one, other]))

    assert list(match.tickets) == [one, other]


# names and options


@pytest.mark.parametrize("name", READY)
def test_every_ready_function_is_made_by_its_name(name: str) -> None:
    needed: dict[str, dict[str, Any]] = {
        "by_pool": {"functions": {"0": "teams"}},
        "in_turn": {"functions": ["teams"]},
        "together": {"function": "teams"},
    }
    function = READY[name](**needed.get(name, {}))

    assert list(function(waiting([]))) == []
    assert READY[name].__doc__
    assert all(one.kind is not one.POSITIONAL_ONLY for one in inspect.signature(READY[name]).parameters.values())


def test_a_function_of_functions_is_made_of_names_and_tables() -> None:
    function = function_of(
        {
            "name": "regions",
            "limit_ms": 60,
            "function": {"name": "backfill_first", "function": {"name": "teams", "size": 1, "window": 5}},
        }
    )
    near = [ticket(skill=1, latency_eu=55), ticket(skill=4, latency_eu=55)]

    assert len(list(function(waiting(near)))) == 1
    assert list(function(waiting([ticket(skill=1, latency_eu=55), ticket(skill=40, latency_eu=55)]))) == []


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("teams", {"siez": 5}, "an option of teams cannot be 'siez'; expected size or teams or skill or window"),
        ("teams", {"size": 0}, "size of teams cannot be 0; expected a whole number, at least 1 and at most 500"),
        ("teams", {"size": "5"}, "size of teams cannot be '5'; expected a whole number"),
        ("teams", {"skill": ""}, "skill of teams cannot be ''; expected the name of an argument of tickets"),
        ("teams", {"window": -1.0}, "window of teams cannot be -1.0; expected a number, at least 0"),
        ("teams", {"window": float("nan")}, "window of teams cannot be nan; expected a number"),
        ("one_against_one", {"size": 2}, "an option of one_against_one cannot be 'size'; expected none"),
        (
            "regions",
            {"function": "team"},
            "function of regions cannot be 'team'; expected a function that is not async",
        ),
        ("regions", {"function": {"size": 5}}, "function of regions cannot be {'size': 5}; expected a function"),
        ("regions", {"function": {"name": "teams", "x": 1}}, "an option of teams cannot be 'x'"),
        (
            "by_pool",
            {"functions": ["teams"]},
            r"functions of by_pool cannot be \['teams'\]; expected a table of functions",
        ),
        ("in_turn", {"functions": "teams"}, "functions of in_turn cannot be 'teams'; expected a list of functions"),
    ],
)
def test_wrong_options_are_told_with_what_is_expected(name: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(WrongValue, match=problem):
        READY[name](**options)


def test_an_async_function_cannot_be_used_by_another() -> None:
    async def later(_: Waiting) -> list[Match]:
        return []

    with pytest.raises(WrongValue, match="expected a function that is not async"):
        together(later)  # type: ignore[arg-type]


def test_whole_numbers_are_numbers() -> None:
    assert len(list(teams(size=1, window=1, widest=1)(waiting([ticket(skill=1), ticket(skill=2)])))) == 1
