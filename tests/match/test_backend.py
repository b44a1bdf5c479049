"""Ticks: who is matched with whom, and what becomes of those who are not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from tests.match.pairing import EVERYONE, at_once, connections, pairing, pairs

from kizuna.app import Kizuna, connect
from kizuna.errors import IllegalName, TickFailed, WrongValue
from kizuna.match import Assignment, Backfill, Group, Match, Pool, Profile, Tick, Waiting
from kizuna.match.backend.backend import rest_after
from kizuna.match.matchmaking import Matchmaking
from kizuna.match.openmatch import messages_pb2
from kizuna.service import running
from kizuna.settings import MatchSettings, Settings
from kizuna.testing import ServerProcess, eventually

HOURS = 3_600.0


async def test_two_who_wait_are_assigned_to_one_server_and_a_third_waits_on(mm: Matchmaking) -> None:
    backend = pairing(mm)
    one, two, three = [await mm.create_ticket() for _ in range(3)]
    tick = await backend.tick()

    assert (tick.fetched, tick.matched, tick.assigned, tick.released, tick.busy) == (3, 2, 2, 1, 0)
    assert [match.ticket_ids for match in tick.matches] == [[one.id, two.id]]
    where = await connections(mm, one.id, two.id, three.id)
    assert where == [f"{tick.matches[0].id}.example:7777"] * 2 + [None]
    four = await mm.create_ticket()
    assert (await backend.tick()).assigned == 2
    assert len(set(await connections(mm, three.id, four.id))) == 1
    assert await mm.count() == 0


async def test_a_tick_without_tickets_does_nothing(mm: Matchmaking) -> None:
    tick = await pairing(mm).tick()

    assert (tick.fetched, tick.assigned, tick.matches) == (0, 0, [])


async def test_functions_and_assigners_may_be_async(mm: Matchmaking) -> None:
    async def slow_pairs(waiting: Waiting) -> Iterable[Match]:
        await asyncio.sleep(0)
        return pairs(waiting)

    async def slow_assigner(matches: Sequence[Match]) -> Iterable[Group]:
        await asyncio.sleep(0)
        return at_once(matches)

    async def all_stand(matches: Sequence[Match]) -> Iterable[str]:
        await asyncio.sleep(0)
        return [match.id for match in matches]

    backend = mm.backend(slow_assigner, evaluator=all_stand)
    backend.add(EVERYONE, slow_pairs)
    for _ in range(4):
        await mm.create_ticket()

    assert (await backend.tick()).assigned == 4


async def test_a_function_sees_its_pools_oldest_first_and_knows_what_time_it_is(mm: Matchmaking) -> None:
    seen: list[Waiting] = []

    def look(waiting: Waiting) -> list[Match]:
        seen.append(waiting)
        return []

    bronze, silver = [await mm.create_ticket(tags=[tag]) for tag in ("bronze", "silver")]
    older = [await mm.create_ticket(tags=["bronze", "silver"]) for _ in range(5)]
    backend = mm.backend(at_once)
    pools = [
        Pool("bronze", tags=["bronze"]),
        Pool("both", tags=["silver"]),
        Pool("both", tags=["bronze"]),
        Pool("no", tags=["gold"]),
    ]
    backend.add(Profile("leagues", pools), look)
    await backend.tick()

    [waiting] = seen
    ids = {name: [ticket.id for ticket in tickets] for name, tickets in waiting.pools.items()}
    both = [ticket.id for ticket in older]
    assert ids == {
        "bronze": [bronze.id, *both],
        "both": [bronze.id, silver.id, *both],
        "no": [],
    }
    assert [ticket.id for ticket in waiting.tickets] == [bronze.id, silver.id, *both]
    assert 0 <= waiting.now_s - bronze.created_at < 60


async def test_tickets_of_two_profiles_play_once(mm: Matchmaking) -> None:
    backend = pairing(mm)
    backend.add(Profile("also 1v1", [Pool("everyone")]), pairs)
    tickets = [await mm.create_ticket() for _ in range(10)]
    tick = await backend.tick()

    assert tick.assigned == 10
    assert len(tick.matches) == 5
    played = Counter(id_ for match in tick.matches for id_ in match.ticket_ids)
    assert played == Counter(ticket.id for ticket in tickets)


async def test_the_better_match_stands(mm: Matchmaking) -> None:
    one, two, three = [await mm.create_ticket() for _ in range(3)]

    def both(waiting: Waiting) -> list[Match]:
        a, b, c = waiting.pools["everyone"]
        return [Match([a, b]), Match([b, c], score=1.0), Match([a, c], score=7.0), Match([a, a], score=99.0)]

    backend = mm.backend(at_once)
    backend.add(EVERYONE, both)
    tick = await backend.tick()

    assert [match.ticket_ids for match in tick.matches] == [[one.id, three.id]]
    assert await mm.query_ids(Pool("all")) == [two.id]


async def test_what_an_evaluator_rejects_can_be_matched_again_at_once(mm: Matchmaking) -> None:
    def only_foo(matches: Sequence[Match]) -> list[str]:
        return [match.id for match in matches if match.profile == "foo"] + ["unknown"]

    backend = mm.backend(at_once, evaluator=only_foo)
    for name in ("foo", "bar"):
        backend.add(Profile(name, [Pool("all", tags=[name])]), pairs)
    foo = [await mm.create_ticket(tags=["foo"]) for _ in range(2)]
    bar = [await mm.create_ticket(tags=["bar"]) for _ in range(2)]

    assert (await backend.tick()).assigned == 2
    assert None not in await connections(mm, *(ticket.id for ticket in foo))
    assert await mm.query_ids(Pool("all")) == [ticket.id for ticket in bar]


async def test_whatever_an_evaluator_lets_pass_nobody_plays_twice(mm: Matchmaking) -> None:
    backend = mm.backend(at_once, evaluator=lambda matches: [match.id for match in matches])
    for name in ("foo", "bar"):
        backend.add(Profile(name, [Pool("all")]), pairs)
    for _ in range(2):
        await mm.create_ticket()
    tick = await backend.tick()

    assert (tick.assigned, len(tick.matches)) == (2, 1)


# -- failures -------------------------------------------------------------------------------------------------------


def fails(_: object) -> Any:
    raise RuntimeError("no idea")


async def test_a_function_that_fails_gives_back_its_tickets_and_the_others_matches_are_made(mm: Matchmaking) -> None:
    backend = mm.backend(at_once)
    backend.add(Profile("good", [Pool("all", tags=["good"])]), pairs)
    backend.add(Profile("bad", [Pool("all", tags=["bad"])]), fails)
    good = [await mm.create_ticket(tags=["good"]) for _ in range(2)]
    bad = [await mm.create_ticket(tags=["bad"]) for _ in range(2)]

    with pytest.raises(TickFailed, match="match function fails of profile bad: RuntimeError") as failed:
        await backend.tick()
    assert isinstance(failed.value.__cause__, RuntimeError)
    assert None not in await connections(mm, *(ticket.id for ticket in good))
    assert await mm.query_ids(Pool("all")) == [ticket.id for ticket in bad]


@pytest.mark.parametrize(
    "returned",
    [
        lambda tickets: [1],
        lambda tickets: [tickets],
        lambda tickets: [Match([1])],  # type: ignore[list-item]
        lambda tickets: [Match(tickets, score="high")],  # type: ignore[arg-type]
        lambda tickets: [Match(tickets, backfill=messages_pb2.Backfill())],  # type: ignore[arg-type]
        lambda tickets: None,
    ],
    ids=["number", "tickets", "match of a number", "score", "backfill", "nothing"],
)
async def test_a_function_that_returns_no_matches_has_failed_and_stops_nobody(mm: Matchmaking, returned: Any) -> None:
    backend = mm.backend(at_once)
    backend.add(Profile("good", [Pool("all", tags=["good"])]), pairs)
    backend.add(Profile("bad", [Pool("all", tags=["bad"])]), lambda waiting: returned(waiting.tickets), name="odd")
    good = [await mm.create_ticket(tags=["good"]) for _ in range(2)]
    bad = [await mm.create_ticket(tags=["bad"]) for _ in range(2)]

    with pytest.raises(TickFailed, match="match function odd of profile bad"):
        await backend.tick()
    assert None not in await connections(mm, *(ticket.id for ticket in good))
    assert await mm.query_ids(Pool("all")) == [ticket.id for ticket in bad]


async def test_a_function_whose_own_task_was_cancelled_has_failed_and_stops_nobody(mm: Matchmaking) -> None:
    async def waits_for_what_is_cancelled(waiting: Waiting) -> Iterable[Match]:
        task = asyncio.ensure_future(asyncio.sleep(HOURS))
        task.cancel()
        await task
        return []

    backend = pairing(mm)
    backend.add(Profile("odd", [Pool("all")]), waits_for_what_is_cancelled)
    tickets = [await mm.create_ticket() for _ in range(2)]

    with pytest.raises(TickFailed, match="what it waited for was cancelled"):
        await backend.tick()
    assert None not in await connections(mm, *(ticket.id for ticket in tickets))


@pytest.mark.parametrize(
    "returned",
    [
        lambda ids: ["host:1"],
        lambda ids: [Group(ids, "host:1")],  # type: ignore[arg-type]
        lambda ids: [Group(ids, Assignment("host:1", {"map": "x" * 2_000_000}))],
        lambda ids: None,
    ],
    ids=["text", "group of text", "too large", "nothing"],
)
async def test_an_assigner_that_returns_no_assignments_has_failed_and_stops_nobody(
    mm: Matchmaking, returned: Any
) -> None:
    backend = mm.backend(at_once)
    backend.add(Profile("good", [Pool("all", tags=["good"])]), pairs)
    odd = Profile("bad", [Pool("all", tags=["bad"])])
    backend.add(odd, pairs, assigner=lambda matches: returned(matches[0].ticket_ids))
    good = [await mm.create_ticket(tags=["good"]) for _ in range(2)]
    bad = [await mm.create_ticket(tags=["bad"]) for _ in range(2)]

    with pytest.raises(TickFailed, match="assigner"):
        await backend.tick()
    assert None not in await connections(mm, *(ticket.id for ticket in good))
    assert await mm.query_ids(Pool("all")) == [ticket.id for ticket in bad]


@pytest.mark.parametrize("bad", [None, "host:1", Assignment("x" * 2_000_000)], ids=["nothing", "text", "too large"])
async def test_what_is_wrong_with_one_group_is_no_harm_to_the_others_of_its_assigner(mm: Matchmaking, bad: Any) -> None:
    tickets = [(await mm.create_ticket()).id for _ in range(4)]

    def assign(matches: Sequence[Match]) -> list[Any]:
        first, second = matches
        return [first.assigned(bad) if isinstance(bad, Assignment) else bad, second.assigned("y:1")]

    with pytest.raises(TickFailed, match="assigner"):
        await pairing(mm, assign).tick()
    assert await connections(mm, *tickets) == [None, None, "y:1", "y:1"]
    assert await mm.query_ids(Pool("all")) == tickets[:2]


async def test_everybody_may_be_in_one_match(mm: Matchmaking) -> None:
    """More than a script can hand on to a command."""
    await asyncio.gather(*(mm.create_ticket() for _ in range(9_000)))
    backend = mm.backend(at_once)
    backend.add(EVERYONE, lambda waiting: [Match(waiting.tickets)])

    tick = await backend.tick()

    assert (tick.assigned, len(tick.matches), await mm.count()) == (9_000, 1, 0)


async def test_the_tickets_of_a_match_may_be_an_iterator(mm: Matchmaking) -> None:
    tickets = [(await mm.create_ticket()).id for _ in range(2)]
    backend = mm.backend(at_once)
    backend.add(EVERYONE, lambda waiting: [Match(iter(waiting.tickets))])  # type: ignore[arg-type]

    [match] = (await backend.tick()).matches

    assert match.assignment is not None
    assert await connections(mm, *tickets) == [match.assignment.connection] * 2


async def test_an_evaluator_that_fails_gives_everything_back(mm: Matchmaking) -> None:
    backend = pairing(mm, evaluator=fails)
    tickets = [await mm.create_ticket() for _ in range(2)]

    with pytest.raises(TickFailed, match="evaluator: RuntimeError"):
        await backend.tick()
    assert await mm.query_ids(Pool("all")) == [ticket.id for ticket in tickets]


async def test_an_assigner_that_fails_gives_back_its_matches_and_no_others(mm: Matchmaking) -> None:
    backend = mm.backend(at_once)
    backend.add(Profile("good", [Pool("all", tags=["good"])]), pairs)
    backend.add(Profile("bad", [Pool("all", tags=["bad"])]), pairs, assigner=fails)
    good = [await mm.create_ticket(tags=["good"]) for _ in range(2)]
    bad = [await mm.create_ticket(tags=["bad"]) for _ in range(2)]

    with pytest.raises(TickFailed, match="assigner: RuntimeError"):
        await backend.tick()
    assert None not in await connections(mm, *(ticket.id for ticket in good))
    assert (await pairing(mm).tick()).assigned == 2
    assert None not in await connections(mm, *(ticket.id for ticket in bad))


async def test_matches_that_the_assigner_leaves_out_wait_on(mm: Matchmaking) -> None:
    backend = pairing(mm, assigner=lambda matches: [matches[0].assigned("only:1")])
    tickets = [await mm.create_ticket() for _ in range(4)]
    tick = await backend.tick()

    assert (tick.assigned, tick.released) == (2, 2)
    assert await mm.query_ids(Pool("all")) == [ticket.id for ticket in tickets[2:]]


async def test_an_assigner_may_say_why_it_leaves_one_out(mm: Matchmaking) -> None:
    backend = pairing(mm, assigner=lambda matches: [RuntimeError("no room"), matches[1].assigned("b:1")])
    tickets = [await mm.create_ticket() for _ in range(4)]

    with pytest.raises(TickFailed, match="no room"):
        await backend.tick()
    assert await connections(mm, *(ticket.id for ticket in tickets)) == [None, None, "b:1", "b:1"]
    assert await mm.query_ids(Pool("all")) == [ticket.id for ticket in tickets[:2]]
    assert backend.counts.failures == 1


async def test_an_assigner_that_names_strangers_assigns_nobody_else(mm: Matchmaking) -> None:
    stranger = await mm.create_ticket(tags=["elsewhere"])
    players = [await mm.create_ticket(tags=["here"]) for _ in range(2)]

    def assign(matches: Sequence[Match]) -> list[Group]:
        return [Group([stranger.id], Assignment("x:1")), *(match.assigned("y:1") for match in matches)]

    backend = pairing(mm, assigner=assign, profile=Profile("1v1", [Pool("all", tags=["here"])]))
    with pytest.raises(TickFailed, match="none of the matches"):
        await backend.tick()
    assert await connections(mm, stranger.id, *(ticket.id for ticket in players)) == [None, "y:1", "y:1"]


async def test_a_match_of_tickets_that_were_not_given_is_dropped(mm: Matchmaking) -> None:
    old = [await mm.create_ticket() for _ in range(2)]
    for ticket in old:
        await mm.deindex_ticket(ticket.id)
    new = [await mm.create_ticket() for _ in range(2)]
    backend = mm.backend(at_once)
    backend.add(EVERYONE, lambda waiting: [Match(old), Match(waiting.tickets)])
    tick = await backend.tick()

    assert [match.ticket_ids for match in tick.matches] == [[ticket.id for ticket in new]]
    assert await connections(mm, *(ticket.id for ticket in old)) == [None, None]


async def test_a_profile_needs_somebody_who_finds_servers(mm: Matchmaking) -> None:
    with pytest.raises(WrongValue, match="finds servers"):
        mm.backend().add(EVERYONE, pairs)


# -- before it is assigned ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"fetch_limit": 0}, {"fetch_limit": -1}, {"tick_every_s": 0}, {"tick_every_s": -1.0}]
)
async def test_a_backend_cannot_have_a_limit_or_a_pace_of_nothing(mm: Matchmaking, wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongValue, match=next(iter(wrong))):
        mm.backend(at_once, **wrong)


async def test_a_backend_needs_a_name_that_a_key_can_have(mm: Matchmaking) -> None:
    with pytest.raises(IllegalName):
        mm.backend(at_once, name="two words")


@pytest.mark.parametrize("function", [None, "package:function"])
async def test_what_cannot_be_called_is_no_function(mm: Matchmaking, function: Any) -> None:
    with pytest.raises(WrongValue, match="match function"):
        mm.backend(at_once).add(EVERYONE, function)
    with pytest.raises(WrongValue, match="assigner"):
        mm.backend(function).add(EVERYONE, pairs)


async def test_when_a_player_leaves_before_the_assignment_the_other_waits_on(mm: Matchmaking) -> None:
    one, two = [await mm.create_ticket() for _ in range(2)]

    async def leaves_meanwhile(matches: Sequence[Match]) -> Iterable[Group]:
        await mm.delete_ticket(one.id)
        return at_once(matches)

    tick = await pairing(mm, leaves_meanwhile).tick()

    assert (tick.assigned, tick.matches) == (0, [])
    assert await connections(mm, two.id) == [None]
    assert await mm.query_ids(Pool("all")) == [two.id]


async def test_without_validation_the_rest_is_assigned_nevertheless(mm: Matchmaking) -> None:
    one, two = [await mm.create_ticket() for _ in range(2)]

    async def leaves_meanwhile(matches: Sequence[Match]) -> Iterable[Group]:
        await mm.delete_ticket(one.id)
        return [match.assigned("same:1") for match in matches]

    tick = await pairing(mm, leaves_meanwhile, validate=False).tick()

    assert tick.assigned == 2
    assert await connections(mm, two.id) == ["same:1"]
    assert await mm.count() == 0


async def test_who_was_assigned_meanwhile_keeps_that_and_the_other_waits_on(mm: Matchmaking) -> None:
    one, two = [await mm.create_ticket() for _ in range(2)]

    async def somebody_is_faster(matches: Sequence[Match]) -> Iterable[Group]:
        assert await mm.assign_tickets([Group([one.id], Assignment("first:1"))]) == {}
        return at_once(matches)

    tick = await pairing(mm, somebody_is_faster).tick()

    assert tick.assigned == 0
    assert await connections(mm, one.id, two.id) == ["first:1", None]
    assert await mm.query_ids(Pool("all")) == [two.id]


async def test_what_a_backend_remembers_of_a_ticket_does_not_make_it_be_there(mm: Matchmaking) -> None:
    backend = pairing(mm)
    one = await mm.create_ticket()
    assert (await backend.tick()).fetched == 1
    await mm.delete_ticket(one.id)
    two, three = [await mm.create_ticket() for _ in range(2)]
    tick = await backend.tick()

    assert [match.ticket_ids for match in tick.matches] == [[two.id, three.id]]


# -- many -----------------------------------------------------------------------------------------------------------


async def test_a_thousand_tickets_and_a_hundred_who_take_them_nobody_twice(mm: Matchmaking) -> None:
    tickets = await asyncio.gather(*(mm.create_ticket() for _ in range(1_000)))
    ids = [ticket.id for ticket in tickets]
    shard = mm.shards[0]
    taken = await asyncio.gather(*(shard.take(ids, f"backend-{number}", begins=True) for number in range(100)))

    counted = Counter(id_ for some in taken for id_ in some.ids)
    assert counted == Counter(ids)
    assert sum(some.busy for some in taken) == 99 * 1_000


async def test_ten_backends_at_once_assign_everybody_once(mm: Matchmaking, settings: Settings) -> None:
    given: Counter[str] = Counter()

    def assign(matches: Sequence[Match]) -> Iterable[Group]:
        given.update(id_ for match in matches for id_ in match.ticket_ids)
        return at_once(matches)

    tickets = await asyncio.gather(*(mm.create_ticket() for _ in range(500)))
    backends = [pairing(mm, assign, fetch_limit=50) for _ in range(10)]

    async def work(number: int) -> None:
        while await mm.count():
            await backends[number].tick()

    await asyncio.wait_for(asyncio.gather(*map(work, range(10))), 50)
    where = Counter(await connections(mm, *(ticket.id for ticket in tickets)))
    assert set(where.values()) == {2}
    assert given == Counter(ticket.id for ticket in tickets)


async def test_beyond_the_limit_everybody_has_a_turn_the_oldest_first(mm: Matchmaking, server: ServerProcess) -> None:
    seen: list[list[str]] = []

    def look(waiting: Waiting) -> list[Match]:
        seen.append([ticket.id for ticket in waiting.tickets])
        return []

    prefix = mm.shards[0].prefix
    tickets = [await mm.create_ticket() for _ in range(25)]
    # Of different seconds, as their ids say.
    named = {}
    for number, ticket in enumerate(tickets):
        named[number] = f"{number:07}{ticket.id[7:]}"
        server.call("SET", prefix + named[number], ticket.encode(), "EX", 60)
        server.call("SADD", f"{prefix}allTickets", named[number])
        await mm.delete_ticket(ticket.id)
    backend = mm.backend(at_once, fetch_limit=10)
    backend.add(EVERYONE, look)
    for _ in range(4):
        await backend.tick()

    oldest_first = [named[number] for number in range(25)]
    assert [sorted(some) for some in seen] == [
        oldest_first[:10],
        oldest_first[10:20],
        oldest_first[20:],
        oldest_first[:10],
    ]


# -- as a service ---------------------------------------------------------------------------------------------------


@pytest.fixture
def patient(settings: Settings) -> Settings:
    """Nothing happens by the clock: what happens was noticed."""
    return msgspec.structs.replace(settings, match=MatchSettings(tick_every_s=HOURS, look_every_s=HOURS))


async def test_a_backend_hears_of_new_tickets_and_players_of_their_assignments(patient: Settings) -> None:
    async with connect(patient) as k, running(pairing(k.match)):
        for _ in range(3):
            one, two = await asyncio.gather(k.match.create_ticket(), k.match.create_ticket())
            first, second = await asyncio.gather(
                k.match.assignment(one.id, timeout_s=30), k.match.assignment(two.id, timeout_s=30)
            )
            assert first == second


async def test_what_waited_before_the_backend_came_is_matched_when_it_comes(patient: Settings) -> None:
    async with connect(patient) as k:
        ticket, _ = await k.match.create_ticket(), await k.match.create_ticket()
        async with running(pairing(k.match)):
            assert await k.match.assignment(ticket.id, timeout_s=30)


async def test_two_backends_that_hold_half_a_match_each_find_it(patient: Settings) -> None:
    async with connect(patient) as k:
        other = pairing(k.match)
        one = await k.match.create_ticket()
        await k.match.shards[0].take([one.id], other.name, begins=True)
        async with running(pairing(k.match)):
            two = await k.match.create_ticket()
            await eventually(lambda: taken_and_released(k))
            await k.match.release_tickets([one.id])

            assert await k.match.assignment(one.id, timeout_s=30) == await k.match.assignment(two.id, timeout_s=30)


async def taken_and_released(k: Kizuna) -> bool:
    pending = await k.match.shards[0].pending()
    return len(pending) == 1 and await k.match.count() == 2


async def test_the_tick_under_way_is_finished_when_a_backend_is_stopped(settings: Settings) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(matches: Sequence[Match]) -> Iterable[Group]:
        began.set()
        await go_on.wait()
        return at_once(matches)

    async with connect(settings) as k:
        one, two = await k.match.create_ticket(), await k.match.create_ticket()
        started = asyncio.Event()
        running_on = asyncio.create_task(pairing(k.match, slow).run(started))
        await asyncio.wait_for(began.wait(), 30)
        running_on.cancel()
        await asyncio.sleep(0.05)
        assert not running_on.done()
        go_on.set()
        await asyncio.wait([running_on], timeout=30)

        assert running_on.cancelled()
        assert len(set(await connections(k.match, one.id, two.id))) == 1
        assert None not in await connections(k.match, one.id, two.id)


async def test_a_backend_that_is_told_twice_to_stop_gives_back_what_it_has(settings: Settings) -> None:
    began = asyncio.Event()

    async def never(_: Sequence[Match]) -> Iterable[Group]:
        began.set()
        await asyncio.Event().wait()
        return []

    async with connect(settings) as k:
        tickets = [await k.match.create_ticket() for _ in range(2)]
        running_on = asyncio.create_task(pairing(k.match, never).run(asyncio.Event()))
        await asyncio.wait_for(began.wait(), 30)
        running_on.cancel()
        await asyncio.sleep(0.05)
        running_on.cancel()
        await asyncio.wait([running_on], timeout=30)

        assert running_on.cancelled()
        assert await k.match.query_ids(Pool("all")) == [ticket.id for ticket in tickets]


async def test_a_backend_goes_on_after_a_failure(settings: Settings) -> None:
    calls = 0

    def fails_once(matches: Sequence[Match]) -> Iterable[Group]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("not yet")
        return at_once(matches)

    quick = msgspec.structs.replace(settings, match=MatchSettings(tick_every_s=0.05))
    async with connect(quick) as k, running(pairing(k.match, fails_once)) as _:
        one, _ = await k.match.create_ticket(), await k.match.create_ticket()
        assert await k.match.assignment(one.id, timeout_s=30)
    assert calls > 1


def test_a_backend_rests_where_it_found_much_and_could_do_little() -> None:
    assert rest_after(Tick(fetched=1_000, assigned=2, took_s=0.5)) == 0.5
    assert rest_after(Tick(fetched=1_000, assigned=1_000, took_s=0.5)) == 0
    assert rest_after(Tick(took_s=0.001)) == 0


async def test_a_function_that_is_added_to_a_running_backend_counts(settings: Settings) -> None:
    async with connect(settings) as k:
        backend = k.match.backend(at_once)
        async with running(backend):
            backend.add(EVERYONE, pairs)
            one, _ = await k.match.create_ticket(), await k.match.create_ticket()
            assert await k.match.assignment(one.id, timeout_s=30)


async def test_a_backend_says_what_it_has_found(settings: Settings) -> None:
    quick = msgspec.structs.replace(settings, match=MatchSettings(tick_every_s=0.1))
    async with connect(quick) as k:
        backend = pairing(k.match)
        async with running(backend):
            for _ in range(3):
                await k.match.create_ticket()

            async def has_reported() -> bool:
                reports = await k.match.backends_report()
                return bool(reports) and reports[0].assigned == 2 and reports[0].pools[0].waiting == 1

            await eventually(has_reported, within_s=30)
            [report] = await k.match.backends_report()
            assert report.name == backend.name
            assert report.matches == 1
            assert report.wait_p50_s is not None
            assert {process.kind for process in await k.processes.active()} == {"matchmaker"}
        assert await k.match.backends_report() == []
    measured = {one.name: one for one in backend.measures()}
    assert measured["minimatch_backend_tickets_fetched_total"].value == backend.counts.fetched
    assert backend.counts.fetched >= 3
    assert measured["minimatch_backend_tickets_assigned_total"].value == 2
    assert measured["minimatch_backend_match_function_latency_seconds"].labels == {"match_profile": "1v1"}
    assert measured["kizuna_match_assigned_total"].value == 2
    assert "minimatch_store_tickets_count" in measured


async def test_how_long_somebody_waited_counts_until_the_assignment(mm: Matchmaking) -> None:
    async def slow(matches: Sequence[Match]) -> Iterable[Group]:
        await asyncio.sleep(0.6)
        return at_once(matches)

    backend = pairing(mm, slow)
    for _ in range(2):
        await mm.create_ticket()
    await backend.tick()

    # Histograms tell bounds: of those between half a second and a whole one, the middle is above the half.
    assert backend.counts.wait_s.count == 2
    assert backend.counts.wait_s.quantile(0.5) >= 0.5


@pytest.mark.parametrize("outcome", ["fails", "leaves it out", "is too late"])
async def test_a_backfill_that_was_opened_for_a_match_without_a_server_is_closed(mm: Matchmaking, outcome: str) -> None:
    tickets = [(await mm.create_ticket()).id for _ in range(2)]

    async def assign(matches: Sequence[Match]) -> Iterable[Group]:
        assert [backfill.id for backfill in await mm.query_backfills(Pool("all"))]
        if outcome == "fails":
            raise RuntimeError("no server is free")
        if outcome == "leaves it out":
            return []
        await mm.delete_ticket(tickets[0])
        return at_once(matches)

    backend = mm.backend(assign)
    backend.add(EVERYONE, lambda waiting: [Match(waiting.tickets, backfill=Backfill(messages_pb2.Backfill()))])
    with suppress(TickFailed):
        await backend.tick()

    assert await mm.query_backfills(Pool("all")) == []
    assert await mm.query_ids(Pool("all")) == (tickets[1:] if outcome == "is too late" else tickets)


async def test_a_backfill_that_was_opened_for_a_match_with_a_server_is_filled_later(mm: Matchmaking) -> None:
    for _ in range(2):
        await mm.create_ticket()
    backend = mm.backend(at_once)
    backend.add(EVERYONE, lambda waiting: [Match(waiting.tickets, backfill=Backfill(messages_pb2.Backfill()))])

    [match] = (await backend.tick()).matches

    assert match.backfill is not None
    assert [backfill.id for backfill in await mm.query_backfills(Pool("all"))] == [match.backfill.id]


async def test_a_pool_that_is_empty_again_is_reported_so_and_shards_are_added_up(settings: Settings) -> None:
    sharded = MatchSettings(shards=3, partition_arg="region")
    async with connect(msgspec.structs.replace(settings, match=sharded)) as k:
        backend = pairing(k.match)
        tickets = [await k.match.create_ticket(strings={"region": region}) for region in "abcdef"]
        await backend.tick()
        assert sum(state.waiting for state in backend.counts.pools.values()) == 6

        for ticket in tickets:
            await k.match.delete_ticket(ticket.id)
        await backend.tick()
        assert [(state.waiting, state.oldest_s) for state in backend.counts.pools.values()] == [(0, 0.0)]
