"""FrontendService over a real channel: tickets and assignments, as games that know minimatch or Open Match expect."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf import wrappers_pb2
from grpc import StatusCode
from tests.match.serving.channels import first_of, refusal

from kizuna.app import Kizuna
from kizuna.match import Assignment, Group
from kizuna.match.openmatch.frontend_pb2 import (
    CreateTicketRequest,
    DeindexTicketRequest,
    DeleteTicketRequest,
    GetTicketRequest,
    WatchAssignmentsRequest,
)
from kizuna.match.openmatch.messages_pb2 import SearchFields, Ticket
from kizuna.match.pools import Pool
from kizuna.testing.waiting import eventually

IMPOSSIBLE = ["a b", "a*", "assign:x", "allTickets", "proposed_ticket_ids", "x" * 1000, "\n", "{x}"]


async def created(stub: Any, **fields: Any) -> Any:
    return await stub.CreateTicket(CreateTicketRequest(ticket=Ticket(**fields)))


async def next_of(stream: Any) -> Any:
    return await asyncio.wait_for(first_of(stream), 20)


# create


async def test_a_ticket_without_anything_gets_an_id_a_time_and_a_life(stub: Any) -> None:
    before_s = time.time()
    ticket = await created(stub)
    life = wrappers_pb2.Int64Value()
    ticket.persistent_field["ttl"].Unpack(life)

    assert re.fullmatch("[0-9a-v]{20}", ticket.id)
    assert before_s - 5 <= ticket.create_time.ToNanoseconds() / 1e9 <= time.time() + 5
    assert life.value == 600_000_000_000
    assert await stub.GetTicket(GetTicketRequest(ticket_id=ticket.id)) == ticket


async def test_what_a_ticket_says_stays_as_it_came(stub: Any) -> None:
    wanted = Ticket(
        id="mine", search_fields=SearchFields(tags=["a"], string_args={"mode": "x"}, double_args={"skill": 1.5})
    )
    wanted.extensions["seed"].Pack(wrappers_pb2.UInt32Value(value=7))

    ticket = await stub.CreateTicket(CreateTicketRequest(ticket=wanted))

    assert ticket.id != "mine"
    assert ticket.search_fields == wanted.search_fields
    assert ticket.extensions == wanted.extensions


async def test_a_request_without_a_ticket_is_refused_and_kills_nobody(stub: Any) -> None:
    assert await refusal(stub.CreateTicket(CreateTicketRequest())) == (
        StatusCode.INVALID_ARGUMENT,
        ".ticket is required",
    )
    assert (await created(stub)).id


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"assignment": {"connection": "x"}}, "tickets cannot be created with an assignment"),
        ({"assignment": {}}, "tickets cannot be created with an assignment"),
        ({"create_time": datetime(2026, 1, 1, tzinfo=UTC)}, "tickets cannot be created with create time set"),
        ({"create_time": datetime(1970, 1, 1, tzinfo=UTC)}, "tickets cannot be created with create time set"),
    ],
)
async def test_what_open_match_refuses_in_a_ticket_is_refused(stub: Any, fields: Any, text: str) -> None:
    assert await refusal(created(stub, **fields)) == (StatusCode.INVALID_ARGUMENT, text)


async def test_a_ticket_that_is_too_large_is_refused_in_words(stub: Any) -> None:
    code, text = await refusal(created(stub, search_fields={"tags": ["x" * 1_100_000]}))

    assert code is StatusCode.INVALID_ARGUMENT
    assert "match.largest_bytes" in text


# get, delete, deindex


@pytest.mark.parametrize(
    ("method", "request_type"),
    [
        ("GetTicket", GetTicketRequest),
        ("DeleteTicket", DeleteTicketRequest),
        ("DeindexTicket", DeindexTicketRequest),
    ],
)
async def test_without_an_id_every_method_refuses(stub: Any, method: str, request_type: Any) -> None:
    assert await refusal(getattr(stub, method)(request_type())) == (StatusCode.INVALID_ARGUMENT, "invalid ticket_id")


async def test_without_an_id_nothing_is_watched(stub: Any) -> None:
    told = await refusal(next_of(stub.WatchAssignments(WatchAssignmentsRequest())))

    assert told == (StatusCode.INVALID_ARGUMENT, "invalid ticket_id")


@pytest.mark.parametrize("id_", ["nope", *IMPOSSIBLE])
async def test_a_ticket_that_is_not_there_is_not_found(stub: Any, id_: str) -> None:
    told = await refusal(stub.GetTicket(GetTicketRequest(ticket_id=id_)))

    assert told == (StatusCode.NOT_FOUND, f"ticket id: {id_} not found")


@pytest.mark.parametrize("id_", ["nope", *IMPOSSIBLE])
async def test_to_remove_what_is_not_there_is_fine_and_removes_nothing_else(stub: Any, k: Kizuna, id_: str) -> None:
    ticket = await created(stub)
    await stub.DeleteTicket(DeleteTicketRequest(ticket_id=id_))
    await stub.DeindexTicket(DeindexTicketRequest(ticket_id=id_))

    assert (await stub.GetTicket(GetTicketRequest(ticket_id=ticket.id))).id == ticket.id
    assert await k.match.query_ids(Pool("all")) == [ticket.id]


async def test_a_ticket_that_is_deleted_is_gone(stub: Any, k: Kizuna) -> None:
    ticket = await created(stub)
    await stub.DeleteTicket(DeleteTicketRequest(ticket_id=ticket.id))

    assert (await refusal(stub.GetTicket(GetTicketRequest(ticket_id=ticket.id))))[0] is StatusCode.NOT_FOUND
    assert await k.match.count() == 0


async def test_a_ticket_that_is_deindexed_is_matched_no_more_and_can_be_read(stub: Any, k: Kizuna) -> None:
    one, other = await created(stub), await created(stub)
    await stub.DeindexTicket(DeindexTicketRequest(ticket_id=one.id))

    assert await k.match.query_ids(Pool("all")) == [other.id]
    assert await stub.GetTicket(GetTicketRequest(ticket_id=one.id)) == one


async def test_an_assigned_ticket_says_where_to_play(stub: Any, k: Kizuna) -> None:
    ticket = await created(stub)
    await k.match.assign_tickets([Group([ticket.id], Assignment("host:1", {"session": "s"}))])

    got = await stub.GetTicket(GetTicketRequest(ticket_id=ticket.id))

    assert got.assignment == Assignment("host:1", {"session": "s"}).message
    got.ClearField("assignment")
    assert got == ticket


# watch


async def test_an_assignment_is_told_as_soon_as_it_is_there(stub: Any, k: Kizuna) -> None:
    tickets = [await created(stub) for _ in range(2)]
    streams = [stub.WatchAssignments(WatchAssignmentsRequest(ticket_id=ticket.id)) for ticket in tickets]
    waiting = [asyncio.ensure_future(next_of(stream)) for stream in streams]
    await eventually(lambda: k.match.watchers.number == 2, within_s=20)
    await k.match.assign_tickets([Group([ticket.id for ticket in tickets], Assignment("host:1"))])

    assert [(await told).assignment.connection for told in waiting] == ["host:1", "host:1"]


async def test_an_assignment_that_is_there_already_is_told_at_once_and_once(stub: Any, k: Kizuna) -> None:
    ticket = await created(stub)
    await k.match.assign_tickets([Group([ticket.id], Assignment("host:1"))])
    stream = stub.WatchAssignments(WatchAssignmentsRequest(ticket_id=ticket.id))

    assert (await next_of(stream)).assignment.connection == "host:1"
    await k.match.delete_ticket(ticket.id)
    # Nothing came in between: the next is the end.
    assert await refusal(next_of(stream)) == (StatusCode.NOT_FOUND, f"Ticket id: {ticket.id} not found")


async def test_types_in_an_assignment_go_on_as_they_came(stub: Any, k: Kizuna) -> None:
    ticket = await created(stub)
    assignment = Assignment("host:1", {"seed": wrappers_pb2.Int32Value(value=7)})
    await k.match.assign_tickets([Group([ticket.id], assignment)])
    told = await next_of(stub.WatchAssignments(WatchAssignmentsRequest(ticket_id=ticket.id)))

    assert told.assignment.extensions["seed"].Is(wrappers_pb2.Int32Value.DESCRIPTOR)


@pytest.mark.parametrize("id_", ["nope", *IMPOSSIBLE])
async def test_a_ticket_that_is_not_there_cannot_be_watched(stub: Any, id_: str) -> None:
    told = await refusal(next_of(stub.WatchAssignments(WatchAssignmentsRequest(ticket_id=id_))))

    assert told == (StatusCode.NOT_FOUND, f"Ticket id: {id_} not found")


async def test_a_watch_ends_when_its_ticket_is_deleted(stub: Any, k: Kizuna) -> None:
    ticket = await created(stub)
    stream = stub.WatchAssignments(WatchAssignmentsRequest(ticket_id=ticket.id))
    end = asyncio.ensure_future(refusal(next_of(stream)))
    await eventually(lambda: k.match.watchers.number == 1, within_s=20)
    await stub.DeleteTicket(DeleteTicketRequest(ticket_id=ticket.id))

    assert await end == (StatusCode.NOT_FOUND, f"Ticket id: {ticket.id} not found")


async def test_of_a_watcher_who_leaves_nothing_is_left(stub: Any, k: Kizuna) -> None:
    ticket = await created(stub)
    stream = stub.WatchAssignments(WatchAssignmentsRequest(ticket_id=ticket.id))
    waiting = asyncio.ensure_future(next_of(stream))
    await eventually(lambda: k.match.watchers.number == 1, within_s=20)
    stream.cancel()
    await asyncio.wait([waiting])

    await eventually(lambda: k.match.watchers.number == 0, within_s=20)


@pytest.mark.timeout(180)
async def test_a_thousand_watchers_are_all_told(stub: Any, k: Kizuna) -> None:
    tickets = await asyncio.gather(*(k.match.create_ticket() for _ in range(1_000)))
    streams = [stub.WatchAssignments(WatchAssignmentsRequest(ticket_id=ticket.id)) for ticket in tickets]
    told = [asyncio.ensure_future(first_of(stream)) for stream in streams]

    def all_watch() -> bool:
        assert [one.exception() for one in told if one.done()] == []
        assert k.match.watchers.number == 1_000
        return True

    await eventually(all_watch, within_s=60)
    groups = [Group([ticket.id], Assignment(f"host:{number}")) for number, ticket in enumerate(tickets)]
    await k.match.assign_tickets(groups)
    connections = [answer.assignment.connection for answer in await asyncio.wait_for(asyncio.gather(*told), 60)]
    for stream in streams:
        stream.cancel()

    assert connections == [f"host:{number}" for number in range(1_000)]
