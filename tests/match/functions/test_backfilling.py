"""Free places in running matches first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.match.functions.waiting_players import (
    PATIENT,
    backfill,
    ids_of,
    oldest_first,
    parties,
    shape_of,
    ticket,
    waiting,
)

from kizuna.match.backfills import Backfill
from kizuna.match.functions import backfill_first, one_against_one, regions
from kizuna.match.matches import Match
from kizuna.match.openmatch import messages_pb2
from kizuna.match.tickets import Ticket, fill

make = backfill_first(one_against_one())
places = st.lists(st.integers(0, 6), max_size=4)


def players(match: Match) -> int:
    return sum(int(one.doubles.get("party_size", 1)) for one in match.tickets)


def free(found: Backfill | None) -> float:
    assert found is not None
    return found.doubles["open_slots"]


@PATIENT
@given(tickets=st.lists(parties, max_size=12), places=places)
def test_nobody_plays_twice_and_no_place_is_given_twice(tickets: list[Ticket], places: list[int]) -> None:
    running = [backfill(str(number), open_slots=slots) for number, slots in enumerate(places)]
    matches = list(make(waiting(tickets, backfills=running)))
    joining = [match for match in matches if match.backfill]

    assert len(ids_of(matches)) == len(set(ids_of(matches)))
    assert len({match.backfill.id for match in joining if match.backfill}) == len(joining)
    for match in joining:
        assert match.backfill is not None
        assert players(match) + free(match.backfill) == places[int(match.backfill.id)]
        assert (match.allocate, match.backfill.generation) == (False, 3)


@PATIENT
@given(tickets=st.lists(parties, max_size=12), places=places)
def test_new_matches_are_made_only_of_those_who_fit_in_nowhere(tickets: list[Ticket], places: list[int]) -> None:
    running = [backfill(str(number), open_slots=slots) for number, slots in enumerate(places)]
    matches = list(make(waiting(tickets, backfills=running)))
    left = {str(number): float(slots) for number, slots in enumerate(places)}
    left |= {match.backfill.id: free(match.backfill) for match in matches if match.backfill}
    joined = {one.id for match in matches if match.backfill for one in match.tickets}

    for one in tickets:
        assert one.id in joined or one.doubles["party_size"] > max(left.values(), default=0)


@PATIENT
@given(tickets=st.lists(parties, max_size=12), places=places)
def test_the_same_players_fill_the_same_places(tickets: list[Ticket], places: list[int]) -> None:
    running = [backfill(str(number), open_slots=slots) for number, slots in enumerate(places)]
    first, second = (shape_of(list(make(waiting(tickets, backfills=running)))) for _ in range(2))

    assert first == second


def test_the_oldest_join_the_oldest_backfill_and_the_rest_play_anew() -> None:
    found = oldest_first([ticket(waited_s=waited_s) for waited_s in (50, 40, 30, 20, 10)])
    first, second, new = make(waiting(found, backfills=[backfill("a", open_slots=2), backfill("b", open_slots=1)]))

    assert [first.ticket_ids, second.ticket_ids] == [[one.id for one in found[:2]], [found[2].id]]
    assert (new.ticket_ids, new.backfill, new.allocate) == ([one.id for one in found[3:]], None, True)


def test_places_may_stand_in_an_extension() -> None:
    [match] = make(waiting([ticket()], backfills=[backfill(extensions={"open_slots": 3})]))

    assert match.backfill is not None
    assert match.backfill.extensions == {"open_slots": 2}
    assert match.backfill.doubles == {}


def test_a_backfill_that_says_nothing_sensible_takes_nobody() -> None:
    odd = [backfill("a"), backfill("b", open_slots=float("nan")), backfill("c", open_slots=-3)]
    odd += [backfill("d", open_slots=float("inf")), backfill("e", extensions={"open_slots": "many"})]  # type: ignore[dict-item]
    two = [ticket(), ticket()]

    assert [match.backfill for match in make(waiting(two, backfills=odd))] == [None]


def test_the_backfill_that_was_given_stays_as_it_is() -> None:
    running = backfill(open_slots=2)
    list(make(waiting([ticket()], backfills=[running])))

    assert running.message.search_fields.double_args["open_slots"] == 2


def test_with_a_skill_only_those_within_the_window_join() -> None:
    join = backfill_first(one_against_one(), skill="skill", window=10, widens_by_s=1, widest=50)
    far, near, patient = ticket(skill=130), ticket(skill=110), ticket(skill=130, waited_s=20)
    unknown = ticket()
    match, *_ = join(waiting([far, near, patient, unknown], backfills=[backfill(open_slots=9, skill=100)]))

    assert set(match.tickets) == {near, patient}


def test_in_regions_only_the_backfills_of_the_region_are_filled() -> None:
    message = messages_pb2.Backfill(id="far", generation=1)
    fill(message, [], {"open_slots": 5}, {"region": "us"}, {}, {})
    make = regions(backfill_first(one_against_one()))
    one = ticket(latency_eu=20, latency_us=250)

    assert list(make(waiting([one], backfills=[Backfill(message)]))) == []
    message.search_fields.string_args["region"] = "eu"
    [match] = make(waiting([one], backfills=[Backfill(message)]))
    assert (match.backfill is not None, match.extensions["region"]) == (True, "eu")
