"""Backends that know the data only, and match our tickets; also beside ours, step by step under the lock."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
from tests.match.outsiders.specification import LockKind, RawBackend, RawFrontend, encode_assignment
from tests.match.pairing import connections, pairing

from kizuna.app import connect
from kizuna.errors import TicketsLocked
from kizuna.match import Pool
from kizuna.match.matchmaking import Matchmaking
from kizuna.service import running
from kizuna.settings import MatchSettings, Settings
from kizuna.testing import ServerProcess, eventually
from kizuna.testing.resp import Conversation

LOCKS: list[LockKind] = ["plain", "three keys"]


@pytest.fixture(params=LOCKS)
def backend(outside: Conversation, prefix: str, request: pytest.FixtureRequest) -> RawBackend:
    return RawBackend(outside, prefix, request.param)


async def test_our_tickets_are_matched_and_our_players_told(mm: Matchmaking, backend: RawBackend) -> None:
    tickets = [await mm.create_ticket() for _ in range(2)]
    waiting = [asyncio.create_task(mm.assignment(ticket.id, timeout_s=20)) for ticket in tickets]
    await eventually(lambda: mm.watchers.number == 2)

    (connection,) = backend.tick("raw")

    assert [(await one).connection for one in waiting] == [connection] * 2
    assert await mm.count() == 0


async def test_what_they_have_taken_is_left_to_them_until_they_let_go(mm: Matchmaking, backend: RawBackend) -> None:
    ids = [(await mm.create_ticket()).id for _ in range(2)]
    assert sorted(backend.fetch()) == sorted(ids)

    tick = await pairing(mm).tick()
    assert (tick.fetched, tick.busy) == (0, 2)
    assert await mm.query_ids(Pool("everyone")) == []

    backend.release(ids)
    assert (await pairing(mm).tick()).assigned == 2


async def test_what_we_have_taken_is_left_to_us(mm: Matchmaking, backend: RawBackend) -> None:
    ids = [(await mm.create_ticket()).id for _ in range(2)]
    taken = await mm.shards[0].take(ids, "ours", begins=True)

    assert taken.ids == ids
    assert backend.fetch() == []

    await mm.release_tickets(ids)
    assert sorted(backend.fetch()) == sorted(ids)


async def test_what_they_took_and_forgot_is_matched_after_the_same_time_as_theirs(
    mm: Matchmaking, outside: Conversation, prefix: str
) -> None:
    ids = [(await mm.create_ticket()).id for _ in range(2)]
    now = int(outside.call("TIME")[0])

    def taken_ago(seconds: int) -> None:
        for id_ in ids:
            outside.call("ZADD", f"{prefix}proposed_ticket_ids", now - seconds, id_)

    taken_ago(40)
    assert (await pairing(mm).tick()).busy == 2
    taken_ago(62)
    assert (await pairing(mm).tick()).assigned == 2


async def test_what_one_of_theirs_had_assigned_before_it_died_is_not_assigned_again(
    mm: Matchmaking, frontend: RawFrontend, outside: Conversation, prefix: str
) -> None:
    """They write assignments first, and take tickets out of the index then; between the two, one may be killed."""
    assigned, other = (await mm.create_ticket()).id, (await mm.create_ticket()).id
    outside.call("SET", f"{prefix}assign:{assigned}", encode_assignment("theirs:1"), "EX", 60)
    backend = pairing(mm)

    assert (await backend.tick()).assigned == 0
    third = (await mm.create_ticket()).id
    assert (await backend.tick()).assigned == 2

    assert frontend.assignment(assigned) == "theirs:1"
    assert frontend.assignment(other) == frontend.assignment(third) is not None
    assert await mm.count() == 0


async def test_what_they_had_assigned_leaves_the_index_before_the_assignment_ends(
    mm: Matchmaking, outside: Conversation, prefix: str
) -> None:
    """Both end after a minute: by then nothing would tell that it was assigned."""
    assigned, held = (await mm.create_ticket()).id, (await mm.create_ticket()).id
    outside.call("SET", f"{prefix}assign:{assigned}", encode_assignment("theirs:1"), "EX", 60)
    taken_at = int(outside.call("TIME")[0]) - 31
    outside.call("ZADD", f"{prefix}proposed_ticket_ids", taken_at, assigned, taken_at, held)

    async with running(pairing(mm)):
        await eventually(lambda: outside.call("SISMEMBER", f"{prefix}allTickets", assigned) == 0, within_s=40)

    assert outside.call("ZSCORE", f"{prefix}proposed_ticket_ids", assigned) is None
    assert outside.call("SMEMBERS", f"{prefix}allTickets") == [held.encode()]


@pytest.mark.parametrize("guard", ["script", "lock"])
@pytest.mark.parametrize("lock", LOCKS)
async def test_while_they_are_picking_we_do_nothing_and_say_so_in_the_end(
    settings: Settings, outside: Conversation, prefix: str, guard: str, lock: LockKind
) -> None:
    brief = msgspec.structs.replace(settings, match=MatchSettings(guard=guard, lock_wait_s=0.05))  # type: ignore[arg-type]
    keys = [f"rueidislock:{number}:{prefix}fetchTicketsLock" for number in (0, 2)]
    async with connect(brief) as k:
        mm = k.match
        ids = [(await mm.create_ticket()).id for _ in range(2)]
        for key in keys if lock == "three keys" else [f"{prefix}fetchTicketsLock"]:
            outside.call("SET", key, "theirs", "PX", 60_000)

        with pytest.raises(TicketsLocked):
            await pairing(mm).tick()
        with pytest.raises(TicketsLocked):
            await mm.delete_ticket(ids[0])
        with pytest.raises(TicketsLocked):
            await mm.deindex_ticket(ids[0])
        with pytest.raises(TicketsLocked):
            await mm.release_tickets(ids)
        assert outside.call("EXISTS", f"{prefix}proposed_ticket_ids") == 0
        assert await mm.query_ids(Pool("everyone")) == ids

        outside.call("DEL", *keys, f"{prefix}fetchTicketsLock")
        assert (await pairing(mm).tick()).assigned == 2


async def test_creating_reading_and_waiting_need_no_lock(
    mm: Matchmaking, frontend: RawFrontend, outside: Conversation, prefix: str
) -> None:
    outside.call("SET", f"{prefix}fetchTicketsLock", "theirs", "PX", 60_000)

    ticket = await mm.create_ticket()

    assert (await mm.get_ticket(ticket.id)).id == ticket.id
    assert await mm.query_ids(Pool("everyone")) == [ticket.id]
    assert frontend.assignment(ticket.id) is None


@pytest.mark.parametrize("guard", ["script", "lock"])
async def test_no_lock_of_ours_is_left_behind(
    settings: Settings, outside: Conversation, prefix: str, guard: str
) -> None:
    guarded = msgspec.structs.replace(settings, match=MatchSettings(guard=guard))  # type: ignore[arg-type]
    async with connect(guarded) as k:
        for _ in range(3):
            await k.match.create_ticket()
        await pairing(k.match).tick()

    assert outside.call("KEYS", f"*{prefix}fetchTicketsLock") == []


# -- both at work -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", ["script", "lock"])
@pytest.mark.parametrize("lock", LOCKS)
async def test_beside_each_other_nobody_is_matched_twice(
    settings: Settings, server: ServerProcess, prefix: str, guard: str, lock: LockKind
) -> None:
    guarded = msgspec.structs.replace(
        settings,
        match=MatchSettings(guard=guard, lock_wait_s=30.0, tick_every_s=0.02),  # type: ignore[arg-type]
    )
    theirs: dict[str, list[str]] = {}
    stop = threading.Event()
    async with connect(guarded) as k:
        mm, ours = k.match, dict[str, list[str]]()
        backend = pairing(mm, fetch_limit=7)
        backend.on_tick = lambda tick: ours.update({f"{one.id}.example:7777": one.ticket_ids for one in tick.matches})
        working = asyncio.create_task(asyncio.to_thread(work_until, stop, server, prefix, lock, theirs))
        try:
            async with running(backend):
                ids = list[str]()
                # Until both have had their part of it, and some more.
                while len(ids) < 120 or (len(ids) < 2_000 and not (ours and theirs)):
                    ids += [(await mm.create_ticket()).id for _ in range(4)]
                    await asyncio.sleep(0.002)
                await eventually(lambda: everybody_is_assigned(mm), within_s=40)
        finally:
            stop.set()
            await working
        told = await connections(mm, *ids)

    assert ours
    assert theirs
    assert sorted(id_ for made in (ours, theirs) for pair in made.values() for id_ in pair) == sorted(ids)
    assert told == [connection_of(id_, ours, theirs) for id_ in ids]


def work_until(
    stop: threading.Event, server: ServerProcess, prefix: str, lock: LockKind, made: dict[str, list[str]]
) -> None:
    with server.connect() as conversation:
        backend = RawBackend(conversation, prefix, lock)
        while not stop.wait(0.003):
            made.update(backend.tick("raw"))


async def everybody_is_assigned(mm: Matchmaking) -> bool:
    return await mm.count() == 0


def connection_of(id_: str, *made: dict[str, list[str]]) -> str:
    (connection,) = [where for matches in made for where, pair in matches.items() if id_ in pair]
    return connection
