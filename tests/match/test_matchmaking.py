"""Tickets as programs create, read and end them."""

from __future__ import annotations

import asyncio
import math
import re
import time
from typing import Any

import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, wrappers_pb2
from tests.match.pairing import connections, pairing

from kizuna.app import connect
from kizuna.errors import BackfillMissing, IllegalName, TicketMissing, TooLarge, WrongValue
from kizuna.match import Assignment, Group, Match, Pool
from kizuna.match.matchmaking import Matchmaking
from kizuna.match.openmatch import messages_pb2
from kizuna.match.xids import made_at
from kizuna.settings import MatchSettings, Settings
from kizuna.testing import ServerProcess, eventually


async def test_a_ticket_says_what_it_was_given_and_when_it_was_made(mm: Matchmaking) -> None:
    before = time.time()
    made = await mm.create_ticket(
        tags=["mode:casual", "region:asia"],
        doubles={"skill": 1500.0},
        strings={"language": "ja"},
        extensions={"name": "Hanako", "level": 7, "ratio": 0.5, "new": True, "raw": b"\xff"},
        persistent={"party": "p1"},
    )
    ticket = await mm.get_ticket(made.id)

    assert ticket == made
    assert (ticket.tags, ticket.doubles, ticket.strings) == (
        ["mode:casual", "region:asia"],
        {"skill": 1500.0},
        {"language": "ja"},
    )
    assert ticket.extensions == {"name": "Hanako", "level": 7, "ratio": 0.5, "new": True, "raw": b"\xff"}
    assert ticket.persistent == {"party": "p1", "ttl": 600_000_000_000}
    assert re.fullmatch("[0-9a-v]{20}", ticket.id)
    assert ticket.assignment is None
    assert before - 5 < ticket.created_at < time.time() + 5
    assert abs((made_at(ticket.id) or 0) - ticket.created_at) < 10


async def test_ids_differ_and_those_made_later_sort_later(mm: Matchmaking) -> None:
    tickets = await asyncio.gather(*(mm.create_ticket() for _ in range(200)))

    assert len({ticket.id for ticket in tickets}) == 200
    by_second = sorted({ticket.id[:7] for ticket in tickets})
    assert by_second == list(dict.fromkeys(ticket.id[:7] for ticket in tickets))


async def test_a_message_of_any_kind_survives_as_it_is(mm: Matchmaking) -> None:
    struct = struct_pb2.Struct()
    struct.update({"a": [1, 2, {"b": None}]})
    made = await mm.create_ticket(extensions={"struct": struct, "small": wrappers_pb2.Int32Value(value=5)})

    extensions = (await mm.get_ticket(made.id)).message.extensions
    read, small = struct_pb2.Struct(), wrappers_pb2.Int32Value()
    assert extensions["struct"].Unpack(read)
    assert read == struct
    assert extensions["small"].Unpack(small)
    assert small.value == 5


async def test_the_key_ends_when_the_ticket_does(mm: Matchmaking, server: ServerProcess) -> None:
    usual, short, own = (
        await mm.create_ticket(),
        await mm.create_ticket(ttl_s=0.5),
        await mm.create_ticket(persistent={"ttl": 30_000_000_000}),
    )
    prefix = mm.shards[0].prefix

    assert 590_000 < server.call("PTTL", prefix + usual.id) <= 600_000
    assert server.call("PTTL", prefix + short.id) <= 500
    assert 20_000 < server.call("PTTL", prefix + own.id) <= 30_000
    assert (await mm.get_ticket(own.id)).persistent["ttl"] == 30_000_000_000

    async def is_gone() -> bool:
        try:
            await mm.get_ticket(short.id)
        except TicketMissing:
            return True
        return False

    await eventually(is_gone)
    # The index still has it, until a backend has missed it twice.
    assert await mm.count() == 3
    assert {ticket.id for ticket in await mm.query_tickets(Pool("all"))} == {usual.id, own.id}


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"ttl_s": 0.0}, "life of a ticket"),
        ({"ttl_s": -1.0}, "life of a ticket"),
        ({"ttl_s": 1e9}, "match.ticket_most_s"),
        ({"persistent": {"ttl": "soon"}}, "persistent_field ttl"),
        ({"tags": "mode"}, "tags"),
        ({"tags": [1]}, "search fields"),
        ({"doubles": {"skill": "high"}}, "search fields"),
        ({"strings": {"mode": 1}}, "search fields"),
        ({"extensions": {"list": [1]}}, "extension list"),
        ({"extensions": {"big": 2**63}}, "extension big"),
        ({"doubles": {"skill": 10**400}}, "search fields"),
        ({"ttl_s": math.nan}, "life of a ticket cannot be nan"),
        ({"ttl_s": math.inf}, "life of a ticket cannot be inf"),
        ({"ttl_s": "soon"}, "life of a ticket cannot be 'soon'"),
    ],
)
async def test_what_no_ticket_can_hold_is_refused_with_a_sentence(
    mm: Matchmaking, wanted: dict[str, object], problem: str
) -> None:
    with pytest.raises(WrongValue, match=problem):
        await mm.create_ticket(**wanted)  # type: ignore[arg-type]

    assert await mm.count() == 0


async def test_a_ticket_that_is_too_large_is_refused(mm: Matchmaking) -> None:
    with pytest.raises(TooLarge, match=r"match\.largest_bytes"):
        await mm.create_ticket(extensions={"blob": b"x" * 1_100_000})

    assert await mm.count() == 0


async def test_what_a_message_says_about_id_and_time_is_replaced(mm: Matchmaking) -> None:
    wanted = messages_pb2.Ticket(id="mine")
    wanted.create_time.seconds = 1
    ticket = await mm.create_from(wanted)

    assert ticket.id != "mine"
    assert ticket.created_at > 1e9
    assert wanted.id == "mine"


async def test_a_deleted_ticket_leaves_nothing(mm: Matchmaking, server: ServerProcess) -> None:
    ticket = await mm.create_ticket()
    await mm.assign_tickets([Group([ticket.id], Assignment("a:1"))])
    await mm.delete_ticket(ticket.id)

    with pytest.raises(TicketMissing, match=f"ticket id: {ticket.id} not found"):
        await mm.get_ticket(ticket.id)
    assert await mm.count() == 0
    assert server.call("EXISTS", *(f"{mm.shards[0].prefix}{key}" for key in (ticket.id, f"assign:{ticket.id}"))) == 0
    await mm.delete_ticket(ticket.id)
    await mm.delete_ticket("never-was")


async def test_a_deindexed_ticket_is_matched_no_more_and_stays_readable(mm: Matchmaking) -> None:
    gone, stays = await mm.create_ticket(), await mm.create_ticket()
    await mm.deindex_ticket(gone.id)

    assert await mm.query_ids(Pool("all")) == [stays.id]
    assert await mm.get_ticket(gone.id) == gone
    await mm.deindex_ticket("never-was")


@pytest.mark.parametrize("id_", ["", "a b", "a:b", "a/b", "a*", "{a}", "x" * 300, "\ud800"])
async def test_an_id_that_no_key_can_have_is_refused(mm: Matchmaking, id_: str) -> None:
    for call in (mm.get_ticket, mm.delete_ticket, mm.deindex_ticket):
        with pytest.raises(IllegalName):
            await call(id_)


async def test_what_is_asked_for_is_oldest_first_and_without_what_others_are_matching(mm: Matchmaking) -> None:
    tickets = [await mm.create_ticket(tags=["a" if number % 2 else "b"]) for number in range(6)]
    taken = await mm.shards[0].take([tickets[1].id], "somebody", begins=True)
    assert taken.ids == [tickets[1].id]

    assert await mm.query_ids(Pool("a", tags=["a"])) == [tickets[3].id, tickets[5].id]
    await mm.release_tickets([tickets[1].id, "", "a b"])
    assert await mm.query_ids(Pool("a", tags=["a"])) == [tickets[1].id, tickets[3].id, tickets[5].id]
    await mm.shards[0].take([ticket.id for ticket in tickets], "somebody", begins=True)
    assert await mm.query_ids(Pool("all")) == []
    await mm.release_all()
    assert len(await mm.query_ids(Pool("all"))) == 6


def theirs(name: str) -> Any:
    """A message of that type, of a class that is not ours."""
    pool = descriptor_pool.DescriptorPool()
    for file in (*messages_pb2.DESCRIPTOR.dependencies, messages_pb2.DESCRIPTOR):
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        pool.Add(proto)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()


async def test_messages_of_stubs_that_somebody_generated_for_themselves_are_taken(mm: Matchmaking) -> None:
    ticket, backfill = theirs("openmatch.Ticket"), theirs("openmatch.Backfill")
    ticket.search_fields.tags.append("theirs")

    assert (await mm.create_from(ticket)).tags == ["theirs"]
    backfill.id = (await mm.create_backfill_from(backfill)).id
    assert (await mm.update_backfill_from(backfill)).generation == 2
    wrong: Any
    for wrong in (backfill, {"tags": ["a"]}, None):
        with pytest.raises(WrongValue, match=r"a message of the type openmatch\.Ticket"):
            await mm.create_from(wrong)
    await mm.delete_backfill(backfill.id)


async def test_an_assignment_that_is_too_large_is_refused_and_nobody_is_assigned(mm: Matchmaking) -> None:
    one, two = await mm.create_ticket(), await mm.create_ticket()
    large = Assignment("a:1", {"map": "x" * 2_000_000})

    with pytest.raises(TooLarge, match="an assignment has"):
        await mm.assign_tickets([Group([one.id], Assignment("b:1")), Group([two.id], large)])
    assert await mm.query_ids(Pool("all")) == [one.id, two.id]


async def test_assigning_by_hand_says_who_is_missing_and_never_assigns_twice(mm: Matchmaking) -> None:
    one, two = await mm.create_ticket(), await mm.create_ticket()
    first, other = Assignment("a:1", {"map": "x"}), Assignment("b:2")

    assert await mm.assign_tickets([Group([one.id, "gone"], first), Group([two.id, "no key"], other)]) == {
        "gone": "missing",
        "no key": "missing",
    }
    assert await mm.assign_tickets([Group([one.id], first)]) == {}
    assert await mm.assign_tickets([Group([one.id], other)]) == {one.id: "assigned"}
    assert (await mm.get_ticket(one.id)).assignment == first
    assert await mm.query_ids(Pool("all")) == []


async def test_two_prefixes_on_one_server_do_not_see_each_other(settings: Settings, root: str) -> None:
    others = msgspec.structs.replace(settings, roots=msgspec.structs.replace(settings.roots, match=f"{root}.two:"))
    async with connect(settings) as one, connect(others) as two:
        ticket = await one.match.create_ticket()

        assert await two.match.count() == 0
        with pytest.raises(TicketMissing):
            await two.match.get_ticket(ticket.id)
        await one.match.delete_ticket(ticket.id)


async def test_a_ticket_waits_as_long_as_is_usual_here(settings: Settings, server: ServerProcess) -> None:
    async with connect(msgspec.structs.replace(settings, match=MatchSettings(ticket_s=45.5))) as k:
        ticket = await k.match.create_ticket()

        assert 30_000 < server.call("PTTL", k.match.shards[0].prefix + ticket.id) <= 45_500
        assert ticket.persistent["ttl"] == 45_500_000_000
        await k.match.delete_ticket(ticket.id)


async def test_what_is_no_ticket_disturbs_nobody(mm: Matchmaking, server: ServerProcess) -> None:
    ticket = await mm.create_ticket()
    prefix = mm.shards[0].prefix
    server.call("SET", f"{prefix}garbage", b"\xff\xff\xff", "EX", 60)
    # The second one is an id of long ago, of a ticket that has ended.
    server.call("SADD", f"{prefix}allTickets", "garbage", "0" * 20)

    assert await mm.query_ids(Pool("all")) == [ticket.id]
    assert await mm.count() == 2


@pytest.mark.parametrize("connection", [None, 7777])
def test_whoever_found_no_server_has_nothing_to_assign(connection: Any) -> None:
    with pytest.raises(WrongValue, match="the connection of an assignment"):
        Match([]).assigned(connection)


async def test_one_id_is_no_list_of_them(mm: Matchmaking) -> None:
    with pytest.raises(WrongValue, match="a list"):
        await mm.release_tickets((await mm.create_ticket()).id)


async def test_what_is_no_backfill_disturbs_nobody_and_can_be_deleted(mm: Matchmaking, server: ServerProcess) -> None:
    good, bad = await mm.create_backfill(), await mm.create_backfill()
    server.call("SET", mm.shards[0].prefix + bad.id, b"\xff\xff\xff", "EX", 60)
    players = [(await mm.create_ticket()).id for _ in range(2)]

    assert [found.id for found in await mm.query_backfills(Pool("all"))] == [good.id]
    assert await mm.propose([Match([], backfill=bad)]) == []
    assert (await pairing(mm).tick()).assigned == 2
    assert None not in await connections(mm, *players)
    await mm.delete_backfill(bad.id)
    with pytest.raises(BackfillMissing):
        await mm.get_backfill(bad.id)


async def test_a_key_that_is_no_ticket_is_none_whatever_is_asked_of_it(mm: Matchmaking, server: ServerProcess) -> None:
    backfill = await mm.create_backfill(tags=["a"])
    prefix = mm.shards[0].prefix
    others = {"somehash": ("HSET", "field", "value"), "sometext": ("SET", "somebody's"), "nothing": ("SET", "")}
    for name, (command, *rest) in others.items():
        server.call(command, prefix + name, *rest)
    for name in (backfill.id, "sometext", "nothing"):
        with pytest.raises(TicketMissing):
            await mm.get_ticket(name)
    none = [*others, backfill.id]
    assert await mm.assign_tickets([Group(none, Assignment("a:1"))]) == dict.fromkeys(none, "missing")
    for name in none:
        await mm.delete_ticket(name)

    assert server.call("EXISTS", *(prefix + name for name in others)) == 3
    assert [server.call("PTTL", prefix + name) for name in others] == [-1] * 3
    assert await mm.get_backfill(backfill.id)
    server.call("DEL", *(prefix + name for name in others))
    await mm.delete_backfill(backfill.id)
