"""Pairs, oldest first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.match.functions.waiting_players import PATIENT, ids_of, in_pools, oldest_first, players, ticket, waiting

from kizuna.match.functions import one_against_one, simple_1vs1
from kizuna.match.tickets import Ticket

pools = st.lists(players, max_size=12)


@PATIENT
@given(tickets=pools)
def test_pairs_are_made_oldest_first_and_at_most_the_youngest_waits(tickets: list[Ticket]) -> None:
    matches = list(one_against_one()(waiting(tickets)))

    assert {len(match.tickets) for match in matches} <= {2}
    assert ids_of(matches) == [one.id for one in oldest_first(tickets)][: len(tickets) // 2 * 2]


@PATIENT
@given(tickets=pools, places=st.lists(st.integers(0, 2), min_size=12, max_size=12))
def test_each_pool_is_paired_by_itself_and_nobody_plays_twice(tickets: list[Ticket], places: list[int]) -> None:
    given = in_pools(tickets, places)
    matches = list(one_against_one()(given))

    played = ids_of(matches)
    assert len(played) == len(set(played))
    for match in matches:
        assert any(set(match.tickets) <= set(pool) for pool in given.pools.values())
    for pool in given.pools.values():
        assert len([one for one in pool if one.id not in played]) <= 1


def test_nobody_waiting_makes_no_match() -> None:
    assert list(one_against_one()(waiting())) == list(one_against_one()(waiting([]))) == []


def test_matches_can_be_named_as_minimatch_names_them() -> None:
    one, other, odd = ticket(waited_s=9), ticket(waited_s=8), ticket(waited_s=7)
    [match] = simple_1vs1()(waiting([odd, other, one]))

    assert match.id == f"ranked_[{one.id} {other.id}]"
    assert (match.function, match.allocate, match.ticket_ids) == ("Simple1vs1", True, [one.id, other.id])
