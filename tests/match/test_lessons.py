"""What goes wrong in minimatch, and what holds here instead.

Elsewhere: a request without a ticket (serving/), functions, evaluators and assigners that fail or leave something out,
tickets in two profiles, turns beyond the limit, functions that are added during a tick (test_backend.py), who waits for
the lock (test_fetch_lock.py), deleted assignments and short lives (test_matchmaking.py), backfills (serving/).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

import pytest
from tests.match.pairing import at_once, connections, pairing

from kizuna.errors import Refused, WrongValue
from kizuna.match import Assignment, Group, Match
from kizuna.match.matchmaking import Matchmaking
from kizuna.match.openmatch import messages_pb2
from kizuna.testing import ServerProcess, eventually
from kizuna.testing.resp import Conversation


@pytest.fixture
def prefix(mm: Matchmaking) -> str:
    return mm.shards[0].prefix


async def test_a_group_that_cannot_be_assigned_keeps_no_other_from_it_and_nobody_is_left_halfway(
    mm: Matchmaking, server: ServerProcess, prefix: str
) -> None:
    """There, groups before the failing one stay in the index with their assignments, and those after it stay taken."""
    ids = [(await mm.create_ticket()).id for _ in range(6)]

    async def one_leaves(matches: Sequence[Match]) -> Iterable[Group]:
        await mm.delete_ticket(matches[1].ticket_ids[0])
        return at_once(matches)

    tick = await pairing(mm, one_leaves).tick()

    # The one whose partner has left can be matched at once; all others are out of the index.
    assert (tick.assigned, tick.released) == (4, 1)
    (left,) = server.call("SMEMBERS", f"{prefix}allTickets")
    assert left.decode() in ids
    assert server.call("EXISTS", f"{prefix}proposed_ticket_ids") == 0
    assert server.call("EXISTS", f"{prefix}assign:{left.decode()}") == 0


async def test_a_ticket_that_cannot_be_entered_in_the_index_is_not_written_either(
    mm: Matchmaking, server: ServerProcess, prefix: str
) -> None:
    server.call("SET", f"{prefix}allTickets", "somebody was here", "EX", 60)

    with pytest.raises(Refused, match="WRONGTYPE"):
        await mm.create_ticket()

    assert server.call("KEYS", f"{prefix}*") == [f"{prefix}allTickets".encode()]
    server.call("DEL", f"{prefix}allTickets")


async def test_who_waits_costs_the_server_nothing_until_something_happens(
    mm: Matchmaking, server: ServerProcess
) -> None:
    """There, each asks ten times in a second."""
    ids = [(await mm.create_ticket()).id for _ in range(50)]
    waiting = [asyncio.create_task(mm.assignment(id_, timeout_s=50)) for id_ in ids]
    await eventually(lambda: mm.watchers.number == 50)
    with server.connect() as conversation:
        # Whatever was asked at the beginning has been answered by then.
        await mm.count()
        began, before = time.monotonic(), calls_of(conversation, "get", "mget")
        await asyncio.sleep(0.6)
        asked, took_s = calls_of(conversation, "get", "mget") - before, time.monotonic() - began

    # They are looked at all together, every two seconds. There, it would be 500 in a second.
    assert asked <= 50 * took_s
    await mm.assign_tickets([Group(ids, Assignment("a:1"))])
    assert {(await one).connection for one in waiting} == {"a:1"}


def calls_of(conversation: Conversation, *commands: str) -> int:
    stats = conversation.call("INFO", "commandstats").decode().splitlines()
    lines = [line for line in stats if line.startswith(tuple(f"cmdstat_{command}:" for command in commands))]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


async def test_to_delete_costs_one_call_and_no_lock(mm: Matchmaking, server: ServerProcess, prefix: str) -> None:
    """There, every deletion competes with all backends for one lock, of nine commands."""
    ids = [(await mm.create_ticket()).id for _ in range(200)]
    with server.connect() as conversation:
        set_before, run_before = calls_of(conversation, "set"), calls_of(conversation, "eval", "evalsha")
        await asyncio.gather(*map(mm.delete_ticket, ids))

        assert calls_of(conversation, "set") == set_before
        assert calls_of(conversation, "eval", "evalsha") - run_before == len(ids)
    assert await mm.count() == 0
    assert server.call("KEYS", f"*{prefix}*") == []


async def test_what_a_client_says_about_the_future_is_kept_and_about_an_assignment_refused(mm: Matchmaking) -> None:
    wanted = messages_pb2.Ticket()
    wanted.persistent_field["party"].type_url = "type.example/party"
    wanted.persistent_field["party"].value = b"\x01"
    ticket = await mm.get_ticket((await mm.create_from(wanted)).id)
    assert sorted(ticket.message.persistent_field) == ["party", "ttl"]
    assert ticket.message.persistent_field["party"] == wanted.persistent_field["party"]

    wanted.assignment.connection = "a:1"
    with pytest.raises(WrongValue, match="assignment"):
        await mm.create_from(wanted)


async def test_each_who_reads_a_ticket_has_one_of_their_own(mm: Matchmaking) -> None:
    id_ = (await mm.create_ticket(tags=["a"])).id
    first, second = await mm.get_ticket(id_), await mm.get_ticket(id_)
    first.message.assignment.connection = "changed"
    first.message.search_fields.tags.append("changed")

    assert second.tags == ["a"]
    assert await connections(mm, id_) == [None]


async def test_after_its_assignment_has_ended_no_ticket_shows_an_old_one(
    mm: Matchmaking, server: ServerProcess, prefix: str
) -> None:
    ids = [(await mm.create_ticket()).id for _ in range(2)]
    await pairing(mm).tick()
    assert all(await connections(mm, *ids))
    server.call("DEL", *(f"{prefix}assign:{id_}" for id_ in ids))

    assert await connections(mm, *ids) == [None, None]


async def test_a_backend_that_has_seen_a_ticket_does_not_assign_it_after_it_was_assigned_elsewhere(
    mm: Matchmaking,
) -> None:
    """There, the ticket cache answers for ten seconds that it is still there."""
    backend = pairing(mm)
    seen = (await mm.create_ticket()).id
    assert (await backend.tick()).fetched == 1

    await mm.assign_tickets([Group([seen], Assignment("elsewhere:1"))])
    other = (await mm.create_ticket()).id
    tick = await backend.tick()

    assert (tick.fetched, tick.assigned) == (1, 0)
    assert await connections(mm, seen, other) == ["elsewhere:1", None]
