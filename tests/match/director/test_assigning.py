"""AssignTickets, ReleaseTickets and ReleaseAllTickets, as a director of Open Match uses them."""

from __future__ import annotations

import pytest
from google.protobuf import wrappers_pb2
from grpc import StatusCode
from tests.match.director.directing import OpenMatch, match_of, open_match, refusal
from tests.match.director.functions import proposing

from kizuna.errors import TicketMissing
from kizuna.match.openmatch import backend_pb2, frontend_pb2, messages_pb2
from kizuna.settings import Settings
from kizuna.testing import eventually

NOT_FOUND = backend_pb2.AssignmentFailure.TICKET_NOT_FOUND
UNKNOWN = backend_pb2.AssignmentFailure.UNKNOWN


def group(connection: str, *ids: str) -> messages_pb2.AssignmentGroup:
    return messages_pb2.AssignmentGroup(ticket_ids=ids, assignment=messages_pb2.Assignment(connection=connection))


async def assign(om: OpenMatch, *groups: messages_pb2.AssignmentGroup) -> backend_pb2.AssignTicketsResponse:
    request = backend_pb2.AssignTicketsRequest(assignments=groups)
    answer: backend_pb2.AssignTicketsResponse = await om.backend.AssignTickets(request)
    return answer


async def connection_of(om: OpenMatch, id_: str) -> str:
    ticket = await om.frontend.GetTicket(frontend_pb2.GetTicketRequest(ticket_id=id_))
    return str(ticket.assignment.connection)


# assigning


async def test_each_group_gets_its_own_connection(om: OpenMatch) -> None:
    one, other, third = (ticket.id for ticket in await om.tickets(3))

    answer = await assign(om, group("a", one), group("b", other, third))

    assert answer == backend_pb2.AssignTicketsResponse()
    assert [await connection_of(om, id_) for id_ in (one, other, third)] == ["a", "b", "b"]


async def test_what_else_the_game_is_told_arrives_as_it_was_sent(om: OpenMatch) -> None:
    ticket = await om.ticket()
    sent = group("a", ticket.id)
    sent.assignment.extensions["number"].Pack(wrappers_pb2.Int32Value(value=7))
    sent.assignment.extensions["odd"].type_url = "type.googleapis.com/somebody.Elses"

    await assign(om, sent)

    found = await om.frontend.GetTicket(frontend_pb2.GetTicketRequest(ticket_id=ticket.id))
    assert found.assignment == sent.assignment


async def test_a_call_without_groups_has_nothing_to_do(om: OpenMatch) -> None:
    assert await assign(om) == backend_pb2.AssignTicketsResponse()


async def test_groups_without_tickets_are_refused(om: OpenMatch) -> None:
    assert await refusal(assign(om, group("a"))) == (StatusCode.INVALID_ARGUMENT, "AssignmentGroupTicketIds is empty")


async def test_a_group_without_an_assignment_is_refused(om: OpenMatch) -> None:
    ticket = await om.ticket()

    refused = await refusal(assign(om, group("a", ticket.id), messages_pb2.AssignmentGroup()))

    assert refused == (StatusCode.INVALID_ARGUMENT, "AssignmentGroup.Assignment is required")
    assert await om.waiting() == {ticket.id}


@pytest.mark.parametrize("groups", [1, 2])
async def test_a_ticket_that_is_named_twice_is_refused_and_nobody_assigned(om: OpenMatch, groups: int) -> None:
    id_ = (await om.ticket()).id
    named = [group("a", id_, id_)] if groups == 1 else [group("a", id_), group("b", id_)]

    refused = await refusal(assign(om, *named))

    text = f"Ticket id {id_} is assigned multiple times in one assign tickets call"
    assert refused == (StatusCode.INVALID_ARGUMENT, text)
    assert await om.waiting() == {id_}


async def test_missing_tickets_are_named_and_the_others_assigned(om: OpenMatch) -> None:
    one, gone, third = (ticket.id for ticket in await om.tickets(3))
    await om.mm.delete_ticket(gone)

    answer = await assign(om, group("a", one, gone, third, "never there", ""))

    assert [(failure.ticket_id, failure.cause) for failure in answer.failures] == [
        (gone, NOT_FOUND),
        ("never there", NOT_FOUND),
        ("", NOT_FOUND),
    ]
    assert [await connection_of(om, id_) for id_ in (one, third)] == ["a", "a"]


async def test_a_ticket_never_gets_a_second_assignment(om: OpenMatch) -> None:
    one, other = (ticket.id for ticket in await om.tickets(2))
    await om.assign("first", one)

    answer = await om.assign("second", one, other)

    assert [(failure.ticket_id, failure.cause) for failure in answer.failures] == [(one, UNKNOWN)]
    assert [await connection_of(om, id_) for id_ in (one, other)] == ["first", "second"]


async def test_the_same_assignment_again_is_fine(om: OpenMatch) -> None:
    ticket = await om.ticket()
    await om.assign("a", ticket.id)

    assert await om.assign("a", ticket.id) == backend_pb2.AssignTicketsResponse()


async def test_assigned_tickets_are_in_no_query_and_in_no_match(om: OpenMatch) -> None:
    one, other = await om.tickets(2)
    assert await om.waiting() == {one.id, other.id}

    await om.assign("a", one.id)

    assert await om.waiting() == {other.id}
    assert await om.fetched(proposing(match_of("1", one, other))) == []


async def test_an_assigned_ticket_ends_after_a_while(settings: Settings) -> None:
    async with open_match(settings, assigned_s=1) as om:
        ticket = await om.ticket()
        await om.assign("a", ticket.id)

        async def has_ended() -> bool:
            try:
                await om.mm.get_ticket(ticket.id)
            except TicketMissing:
                return True
            return False

        await eventually(has_ended, within_s=20)
        get = om.frontend.GetTicket(frontend_pb2.GetTicketRequest(ticket_id=ticket.id))
        assert await refusal(get) == (StatusCode.NOT_FOUND, f"ticket id: {ticket.id} not found")


# releasing


async def test_releasing_nothing_is_fine(om: OpenMatch) -> None:
    answer = await om.backend.ReleaseTickets(backend_pb2.ReleaseTicketsRequest())

    assert answer == backend_pb2.ReleaseTicketsResponse()


async def test_released_tickets_can_be_matched_again_and_no_others(om: OpenMatch) -> None:
    one, other = await om.tickets(2)
    assert len(await om.fetched(proposing(match_of("1", one), match_of("2", other)))) == 2
    assert await om.waiting() == set()

    answer = await om.backend.ReleaseTickets(backend_pb2.ReleaseTicketsRequest(ticket_ids=[one.id, "nobody", "", " "]))

    assert answer == backend_pb2.ReleaseTicketsResponse()
    assert await om.waiting() == {one.id}
    assert len(await om.fetched(proposing(match_of("3", one)))) == 1


async def test_all_tickets_can_be_released_at_once(om: OpenMatch) -> None:
    tickets = await om.tickets(5)
    await om.fetched(proposing(*(match_of(ticket.id, ticket) for ticket in tickets)))
    assert await om.waiting() == set()

    answer = await om.backend.ReleaseAllTickets(backend_pb2.ReleaseAllTicketsRequest())

    assert answer == backend_pb2.ReleaseAllTicketsResponse()
    assert await om.waiting() == {ticket.id for ticket in tickets}


async def test_tickets_that_nobody_assigns_come_back_by_themselves(settings: Settings) -> None:
    async with open_match(settings, pending_s=1) as om:
        ticket = await om.ticket()
        assert len(await om.fetched(proposing(match_of("1", ticket)))) == 1

        async def is_back() -> bool:
            return await om.waiting() == {ticket.id}

        await eventually(is_back, within_s=20)
