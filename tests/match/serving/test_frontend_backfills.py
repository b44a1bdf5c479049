"""FrontendService over a real channel: backfills, by the rules of Open Match."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from google.protobuf import wrappers_pb2
from grpc import StatusCode
from tests.match.serving.channels import channel_to, frontend, ready, refusal

from kizuna.app import Kizuna, connect
from kizuna.match import Assignment as Sent
from kizuna.match import Group, Match, Pool
from kizuna.match.openmatch.frontend_pb2 import (
    AcknowledgeBackfillRequest,
    CreateBackfillRequest,
    DeleteBackfillRequest,
    GetBackfillRequest,
    UpdateBackfillRequest,
)
from kizuna.match.openmatch.messages_pb2 import Assignment, Backfill
from kizuna.match.serving.frontend_calls import FrontendCalls
from kizuna.match.serving.grpc_server import GrpcServer
from kizuna.service import running
from kizuna.settings import MatchSettings, Settings
from kizuna.testing.waiting import eventually

HOST = Assignment(connection="host:1")
UNKNOWN = ["nope", "a b", "allBackfills", "x" * 1000]


async def created(stub: Any, **fields: Any) -> Any:
    return await stub.CreateBackfill(CreateBackfillRequest(backfill=Backfill(**fields)))


async def got(stub: Any, id_: str) -> Any:
    return await stub.GetBackfill(GetBackfillRequest(backfill_id=id_))


# create and get


async def test_a_backfill_gets_an_id_a_time_and_its_first_generation(stub: Any) -> None:
    one, other = await created(stub, search_fields={"tags": ["a"]}), await created(stub)

    assert re.fullmatch("[0-9a-v]{20}", one.id)
    assert one.id != other.id
    assert (one.generation, list(one.search_fields.tags)) == (1, ["a"])
    assert one.HasField("create_time")
    assert await got(stub, one.id) == one


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (CreateBackfillRequest(), ".backfill is required"),
        (
            CreateBackfillRequest(backfill=Backfill(create_time=datetime(2026, 1, 1, tzinfo=UTC))),
            "backfills cannot be created with create time set",
        ),
    ],
)
async def test_what_open_match_refuses_in_a_backfill_is_refused(stub: Any, request_: Any, text: str) -> None:
    assert await refusal(stub.CreateBackfill(request_)) == (StatusCode.INVALID_ARGUMENT, text)


@pytest.mark.parametrize("id_", ["", *UNKNOWN])
async def test_a_backfill_that_is_not_there_is_not_found(stub: Any, id_: str) -> None:
    assert await refusal(got(stub, id_)) == (StatusCode.NOT_FOUND, f"Backfill id: {id_} not found")


# update


async def test_an_update_is_the_next_generation_and_keeps_the_time(stub: Any) -> None:
    first = await created(stub, search_fields={"tags": ["a"]})
    wanted = Backfill(
        id=first.id,
        generation=42,
        create_time=datetime(2020, 1, 1, tzinfo=UTC),
        search_fields={"tags": ["b"]},
    )
    wanted.extensions["x"].Pack(wrappers_pb2.Int32Value(value=1))
    wanted.persistent_field["y"].Pack(wrappers_pb2.Int32Value(value=2))

    second = await stub.UpdateBackfill(UpdateBackfillRequest(backfill=wanted))

    assert (second.id, second.generation, second.create_time) == (first.id, 2, first.create_time)
    assert second.search_fields == wanted.search_fields
    assert second.extensions == wanted.extensions
    assert second.persistent_field == wanted.persistent_field
    assert await got(stub, first.id) == second


async def test_an_update_without_search_fields_leaves_it_without(stub: Any) -> None:
    first = await created(stub, search_fields={"tags": ["a"]})

    second = await stub.UpdateBackfill(UpdateBackfillRequest(backfill=Backfill(id=first.id)))

    assert not second.HasField("search_fields")
    assert await got(stub, first.id) == second


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (UpdateBackfillRequest(), ".backfill is required"),
        (UpdateBackfillRequest(backfill=Backfill()), "backfill ID should exist"),
    ],
)
async def test_an_update_of_nothing_is_refused(stub: Any, request_: Any, text: str) -> None:
    assert await refusal(stub.UpdateBackfill(request_)) == (StatusCode.INVALID_ARGUMENT, text)


@pytest.mark.parametrize("id_", UNKNOWN)
async def test_an_update_of_what_is_not_there_is_not_found(stub: Any, id_: str) -> None:
    told = await refusal(stub.UpdateBackfill(UpdateBackfillRequest(backfill=Backfill(id=id_))))

    assert told == (StatusCode.NOT_FOUND, f"Backfill id: {id_} not found")


# delete


async def test_a_backfill_that_is_deleted_is_gone_and_may_be_deleted_again(stub: Any) -> None:
    backfill = await created(stub)
    for _ in range(2):
        await stub.DeleteBackfill(DeleteBackfillRequest(backfill_id=backfill.id))

    assert (await refusal(got(stub, backfill.id)))[0] is StatusCode.NOT_FOUND


@pytest.mark.parametrize("id_", UNKNOWN)
async def test_to_delete_what_is_not_there_is_fine(stub: Any, id_: str) -> None:
    backfill = await created(stub)
    await stub.DeleteBackfill(DeleteBackfillRequest(backfill_id=id_))

    assert await got(stub, backfill.id) == backfill


async def test_to_delete_without_an_id_is_refused(stub: Any) -> None:
    told = await refusal(stub.DeleteBackfill(DeleteBackfillRequest()))

    assert told == (StatusCode.INVALID_ARGUMENT, ".BackfillId is required")


# acknowledge


async def test_who_waits_for_a_backfill_is_assigned_when_it_is_acknowledged(stub: Any, k: Kizuna) -> None:
    backfill = await created(stub)
    tickets = [await k.match.create_ticket() for _ in range(2)]
    [found] = await k.match.query_backfills(Pool("all"))
    assert await k.match.propose([Match(tickets, backfill=found)])

    told = await stub.AcknowledgeBackfill(AcknowledgeBackfillRequest(backfill_id=backfill.id, assignment=HOST))

    assert told.backfill.id == backfill.id
    assert {ticket.id for ticket in told.tickets} == {ticket.id for ticket in tickets}
    assert {ticket.assignment.connection for ticket in told.tickets} == {"host:1"}
    for ticket in tickets:
        assert (await k.match.assignment(ticket.id, timeout_s=20)).connection == "host:1"


async def test_a_ticket_that_was_deleted_meanwhile_is_not_among_them(stub: Any, k: Kizuna) -> None:
    backfill = await created(stub)
    tickets = [await k.match.create_ticket() for _ in range(2)]
    [found] = await k.match.query_backfills(Pool("all"))
    assert await k.match.propose([Match(tickets, backfill=found)])
    await k.match.delete_ticket(tickets[0].id)

    told = await stub.AcknowledgeBackfill(AcknowledgeBackfillRequest(backfill_id=backfill.id, assignment=HOST))

    assert [ticket.id for ticket in told.tickets] == [tickets[1].id]


async def test_who_was_sent_elsewhere_meanwhile_is_not_among_them_either(stub: Any, k: Kizuna) -> None:
    backfill = await created(stub)
    tickets = [await k.match.create_ticket() for _ in range(2)]
    [found] = await k.match.query_backfills(Pool("all"))
    assert await k.match.propose([Match(tickets, backfill=found)])
    await k.match.assign_tickets([Group([tickets[0].id], Sent("elsewhere:1"))])

    told = await stub.AcknowledgeBackfill(AcknowledgeBackfillRequest(backfill_id=backfill.id, assignment=HOST))

    assert [ticket.id for ticket in told.tickets] == [tickets[1].id]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (AcknowledgeBackfillRequest(assignment=HOST), ".BackfillId is required"),
        (AcknowledgeBackfillRequest(backfill_id="x"), ".Assignment is required"),
    ],
)
async def test_without_an_id_or_an_assignment_nothing_is_acknowledged(stub: Any, request_: Any, text: str) -> None:
    assert await refusal(stub.AcknowledgeBackfill(request_)) == (StatusCode.INVALID_ARGUMENT, text)


@pytest.mark.parametrize("id_", UNKNOWN)
async def test_what_is_not_there_cannot_be_acknowledged(stub: Any, id_: str) -> None:
    told = await refusal(stub.AcknowledgeBackfill(AcknowledgeBackfillRequest(backfill_id=id_, assignment=HOST)))

    assert told == (StatusCode.NOT_FOUND, f"Backfill id: {id_} not found")


# expiry


async def test_a_backfill_that_nobody_acknowledged_in_time_has_expired(settings: Settings) -> None:
    settings = msgspec.structs.replace(settings, match=MatchSettings(pending_s=1))
    async with connect(settings) as k:
        server = GrpcServer(FrontendCalls(k.match).rpcs(), settings.match, port=0, ready=ready)
        async with running(server), channel_to(server) as channel:
            stub = frontend(channel)
            id_ = (await created(stub)).id

            async def gone() -> bool:
                return not await k.match.query_backfills(Pool("all"))

            await eventually(gone, within_s=20)
            updating = stub.UpdateBackfill(UpdateBackfillRequest(backfill=Backfill(id=id_)))
            acknowledging = stub.AcknowledgeBackfill(AcknowledgeBackfillRequest(backfill_id=id_, assignment=HOST))

            for call, what in ((updating, "update"), (acknowledging, "acknowledge")):
                told = await refusal(call)
                assert told == (StatusCode.UNAVAILABLE, f"can not {what} an expired backfill, id: {id_}")


async def test_what_else_is_stored_is_no_backfill_and_left_alone(stub: Any, k: Kizuna) -> None:
    ticket = await k.match.create_ticket()
    list_, text = "somebodys-list", "somebodys-text"
    root = k.settings.roots.match
    await k.store.call_all([("RPUSH", root + list_, 1), ("SET", root + text, "")])
    try:
        for id_ in (ticket.id, list_, text):
            missing = (StatusCode.NOT_FOUND, f"Backfill id: {id_} not found")
            acknowledging = AcknowledgeBackfillRequest(backfill_id=id_, assignment=HOST)
            assert await refusal(got(stub, id_)) == missing
            assert await refusal(stub.UpdateBackfill(UpdateBackfillRequest(backfill=Backfill(id=id_)))) == missing
            assert await refusal(stub.AcknowledgeBackfill(acknowledging)) == missing
            await stub.DeleteBackfill(DeleteBackfillRequest(backfill_id=id_))
            assert await k.store.call("EXISTS", root + id_)
    finally:
        await k.store.call("DEL", root + list_, root + text)
