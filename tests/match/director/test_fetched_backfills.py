"""Backfills in the matches that a director fetches."""

from __future__ import annotations

import pytest
from tests.match.director.directing import OpenMatch, match_of, same
from tests.match.director.functions import proposing

from kizuna.match.openmatch import frontend_pb2, messages_pb2


def wanted(**strings: str) -> messages_pb2.Backfill:
    return messages_pb2.Backfill(search_fields=messages_pb2.SearchFields(string_args=strings))


async def stored(om: OpenMatch, id_: str) -> messages_pb2.Backfill:
    found: messages_pb2.Backfill = await om.frontend.GetBackfill(frontend_pb2.GetBackfillRequest(backfill_id=id_))
    return found


async def acknowledged(om: OpenMatch, id_: str, connection: str) -> frontend_pb2.AcknowledgeBackfillResponse:
    request = frontend_pb2.AcknowledgeBackfillRequest(
        backfill_id=id_, assignment=messages_pb2.Assignment(connection=connection)
    )
    answer: frontend_pb2.AcknowledgeBackfillResponse = await om.frontend.AcknowledgeBackfill(request)
    return answer


async def test_a_match_opens_a_backfill_that_it_wants(om: OpenMatch) -> None:
    ticket = await om.ticket()

    [fetched] = await om.fetched(proposing(match_of("1", ticket, backfill=wanted(field="value"))))

    found = await stored(om, fetched.backfill.id)
    assert same(found, fetched.backfill)
    assert found.search_fields == wanted(field="value").search_fields
    assert found.generation == 1
    assert found.HasField("create_time")
    assert await om.waiting() == set()


async def test_a_match_changes_the_backfill_that_it_joins(om: OpenMatch) -> None:
    ticket = await om.ticket()
    before = (await om.mm.create_backfill(strings={"field": "value"})).message
    proposed = messages_pb2.Backfill()
    proposed.CopyFrom(before)
    proposed.search_fields.CopyFrom(wanted(other="else").search_fields)
    match = match_of("1", ticket, backfill=proposed)

    [fetched] = await om.fetched(proposing(match))

    assert same(fetched, match)
    found = await stored(om, before.id)
    proposed.generation += 1
    assert same(found, proposed)
    assert await om.waiting() == set()


async def test_a_match_for_an_older_generation_is_dropped_and_its_tickets_stay(om: OpenMatch) -> None:
    one, other = await om.tickets(2)
    old = messages_pb2.Backfill()
    old.CopyFrom((await om.mm.create_backfill()).message)
    await om.mm.update_backfill_from(old)

    fetched = await om.fetched(proposing(match_of("1", one, backfill=old), match_of("2", other)))

    assert [match.match_id for match in fetched] == ["2"]
    assert await om.waiting() == {one.id}
    assert (await stored(om, old.id)).generation == 2


async def test_a_match_for_no_generation_at_all_is_dropped(om: OpenMatch) -> None:
    backfill = (await om.mm.create_backfill()).message
    unsaid = messages_pb2.Backfill(id=backfill.id)

    assert await om.fetched(proposing(match_of("1", await om.ticket(), backfill=unsaid))) == []


@pytest.mark.parametrize("id_", ["cko00000000000000000", "no body", "allTickets"])
async def test_a_match_for_a_backfill_that_is_gone_is_dropped_and_the_others_stand(om: OpenMatch, id_: str) -> None:
    one, other = await om.tickets(2)
    gone = messages_pb2.Backfill(id=id_, generation=1)

    fetched = await om.fetched(proposing(match_of("1", one, backfill=gone), match_of("2", other)))

    assert [match.match_id for match in fetched] == ["2"]
    assert await om.waiting() == {one.id}


async def test_the_game_server_that_acknowledges_gets_all_tickets_of_its_matches(om: OpenMatch) -> None:
    one, other, third = await om.tickets(3)
    [first] = await om.fetched(proposing(match_of("1", one, other, backfill=wanted())))
    joined = await stored(om, first.backfill.id)
    await om.fetched(proposing(match_of("2", third, backfill=joined)))

    answer = await acknowledged(om, joined.id, "server:7777")

    assert {ticket.id for ticket in answer.tickets} == {one.id, other.id, third.id}
    assert {ticket.assignment.connection for ticket in answer.tickets} == {"server:7777"}
    for ticket in (one, other, third):
        found = await om.frontend.GetTicket(frontend_pb2.GetTicketRequest(ticket_id=ticket.id))
        assert found.assignment.connection == "server:7777"


async def test_a_ticket_that_was_deleted_meanwhile_is_not_among_them(om: OpenMatch) -> None:
    one, other = await om.tickets(2)
    [fetched] = await om.fetched(proposing(match_of("1", one, other, backfill=wanted())))
    await om.mm.delete_ticket(other.id)

    answer = await acknowledged(om, fetched.backfill.id, "server:7777")

    assert [ticket.id for ticket in answer.tickets] == [one.id]
