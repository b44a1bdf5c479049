"""The frontend of Open Match over HTTP: each of its paths, on real tickets."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from tests.match.gateway.talking import Answer, ask, conversation

from kizuna.app import Kizuna, connect
from kizuna.match import Assignment, Group, Match
from kizuna.match.gateway import Gateway
from kizuna.match.serving.frontend_calls import FrontendCalls
from kizuna.service import running
from kizuna.settings import Settings
from kizuna.testing.waiting import eventually

TICKETS = "/v1/frontendservice/tickets"
BACKFILLS = "/v1/frontendservice/backfills"
XID = re.compile("[0-9a-v]{20}")
TEN_MINUTES = {"@type": "type.googleapis.com/google.protobuf.Int64Value", "value": "600000000000"}


class Frontend(NamedTuple):
    k: Kizuna
    gateway: Gateway

    async def __call__(self, method: str, path: str, body: object = None) -> Answer:
        return await ask(self.gateway.url, method, path, body)

    async def create(self) -> str:
        id_: str = (await self("POST", TICKETS, {"ticket": {}})).json()["id"]
        return id_

    async def assign(self, id_: str, connection: str) -> None:
        assert await self.k.match.assign_tickets([Group([id_], Assignment(connection))]) == {}


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Frontend]:
    async with connect(settings) as k:
        gateway = Gateway(FrontendCalls(k.match).rpcs(), settings.match, port=0)
        async with running(gateway):
            yield Frontend(k, gateway)


@pytest.fixture
async def frontend(settings: Settings) -> AsyncIterator[Frontend]:
    async with serving(settings) as frontend:
        yield frontend


async def test_a_ticket_is_created_read_and_deleted(frontend: Frontend) -> None:
    sent = {"search_fields": {"tags": ["x"], "double_args": {"skill": 7.5}, "string_args": {"mode": "ranked"}}}

    created = await frontend("POST", TICKETS, {"ticket": sent})
    ticket = created.json()
    assert created.status == 200
    assert XID.fullmatch(ticket["id"])
    assert ticket["search_fields"] == sent["search_fields"]
    assert ticket["persistent_field"]["ttl"] == TEN_MINUTES
    assert ticket["create_time"].endswith("Z")
    assert "assignment" not in ticket

    assert (await frontend("GET", f"{TICKETS}/{ticket['id']}")).json() == ticket
    deleted = await frontend("DELETE", f"{TICKETS}/{ticket['id']}")
    assert (deleted.status, deleted.json()) == (200, {})
    gone = await frontend("GET", f"{TICKETS}/{ticket['id']}")
    assert (gone.status, gone.json()["code"]) == (404, 5)


async def test_what_open_match_refuses_is_refused_in_its_words(frontend: Frontend) -> None:
    missing = "ticket id: no-such-ticket not found"
    expected = {
        ("POST", TICKETS, "{}"): (400, 3, ".ticket is required"),
        ("POST", TICKETS, ""): (400, 3, ".ticket is required"),
        ("POST", TICKETS, '{"ticket":{"assignment":{}}}'): (400, 3, "tickets cannot be created with an assignment"),
        ("POST", TICKETS, '{"ticket":{"createTime":"2026-01-01T00:00:00Z"}}'): (
            400,
            3,
            "tickets cannot be created with create time set",
        ),
        ("GET", f"{TICKETS}/no-such-ticket", ""): (404, 5, missing),
        ("GET", f"{TICKETS}/", ""): (400, 3, "invalid ticket_id"),
        ("DELETE", f"{TICKETS}/", ""): (400, 3, "invalid ticket_id"),
        ("GET", f"{TICKETS}/a%20b", ""): (404, 5, "ticket id: a b not found"),
        ("GET", f"{TICKETS}/%E7%B5%86", ""): (404, 5, "ticket id: 絆 not found"),
        ("GET", f"{TICKETS}/a%2Fb", ""): (404, 5, "Not Found"),
        ("GET", f"{TICKETS}/..", ""): (404, 5, "ticket id: .. not found"),
        ("POST", BACKFILLS, "{}"): (400, 3, ".backfill is required"),
        ("PATCH", BACKFILLS, "{}"): (400, 3, ".backfill is required"),
        ("PATCH", BACKFILLS, '{"backfill":{}}'): (400, 3, "backfill ID should exist"),
        ("GET", f"{BACKFILLS}/none", ""): (404, 5, "Backfill id: none not found"),
        ("DELETE", f"{BACKFILLS}/", ""): (400, 3, ".BackfillId is required"),
        ("POST", f"{BACKFILLS}/none/acknowledge", "{}"): (400, 3, ".Assignment is required"),
        ("POST", f"{BACKFILLS}/none/acknowledge", '{"assignment":{"connection":"x"}}'): (
            404,
            5,
            "Backfill id: none not found",
        ),
    }

    answers = {asked: await frontend(asked[0], asked[1], asked[2].encode()) for asked in expected}

    told = {asked: (each.status, each.json()["code"], each.json()["message"]) for asked, each in answers.items()}
    assert told == expected


async def test_a_ticket_that_nobody_knows_is_deleted_without_a_word(frontend: Frontend) -> None:
    for id_ in ("no-such-ticket", "a%20b", "%E7%B5%86"):
        assert (await frontend("DELETE", f"{TICKETS}/{id_}")).status == 200


async def test_an_assignment_is_seen_on_the_open_stream_and_in_the_ticket(frontend: Frontend) -> None:
    id_ = await frontend.create()
    async with conversation(frontend.gateway.url) as talk:
        await talk.request("GET", f"{TICKETS}/{id_}/assignments")
        await eventually(lambda: frontend.k.match.watchers.number == 1)

        await frontend.assign(id_, "10.0.0.7:7777")

        assert await talk.status() == 200
        assert json.loads(await talk.chunk()) == {"result": {"assignment": {"connection": "10.0.0.7:7777"}}}
        assert (await frontend("GET", f"{TICKETS}/{id_}")).json()["assignment"] == {"connection": "10.0.0.7:7777"}

        await frontend("DELETE", f"{TICKETS}/{id_}")
        assert json.loads(await talk.chunk()) == {"error": {"code": 5, "message": f"Ticket id: {id_} not found"}}
        assert await talk.chunk() == b""


async def test_a_ticket_that_nobody_knows_cannot_be_watched(frontend: Frontend) -> None:
    answer = await frontend("GET", f"{TICKETS}/no-such-ticket/assignments")

    assert answer.status == 404
    assert answer.json() == {"error": {"code": 5, "message": "Ticket id: no-such-ticket not found"}}


async def test_who_leaves_is_no_longer_waited_for(frontend: Frontend) -> None:
    id_ = await frontend.create()
    async with conversation(frontend.gateway.url) as talk:
        await talk.request("GET", f"{TICKETS}/{id_}/assignments")
        await eventually(lambda: frontend.k.match.watchers.number == 1)
        talk.leave()
        await eventually(lambda: frontend.k.match.watchers.number == 0)


async def test_fifty_who_watch_are_all_told(frontend: Frontend) -> None:
    ids = [await frontend.create() for _ in range(50)]

    async def assigned(id_: str) -> str:
        async with conversation(frontend.gateway.url) as talk:
            await talk.request("GET", f"{TICKETS}/{id_}/assignments")
            assert await talk.status() == 200
            connection: str = json.loads(await talk.chunk())["result"]["assignment"]["connection"]
            return connection

    watches = asyncio.gather(*map(assigned, ids))
    await eventually(lambda: frontend.k.match.watchers.number == 50)
    groups = [Group([id_], Assignment(f"server-of-{id_}")) for id_ in ids]
    assert await frontend.k.match.assign_tickets(groups) == {}

    assert await watches == [f"server-of-{id_}" for id_ in ids]


async def test_a_backfill_is_created_read_updated_and_deleted(frontend: Frontend) -> None:
    created = (await frontend("POST", BACKFILLS, {"backfill": {"search_fields": {"tags": ["x"]}}})).json()
    assert XID.fullmatch(created["id"])
    # As all integers of 64 bits are written.
    assert created["generation"] == "1"

    changed = {"backfill": {"id": created["id"], "searchFields": {"tags": ["y"]}, "generation": "42"}}
    updated = (await frontend("PATCH", BACKFILLS, changed)).json()
    assert (updated["generation"], updated["search_fields"]) == ("2", {"tags": ["y"]})
    assert updated["create_time"] == created["create_time"]

    assert (await frontend("GET", f"{BACKFILLS}/{created['id']}")).json() == updated
    assert (await frontend("DELETE", f"{BACKFILLS}/{created['id']}")).json() == {}
    assert (await frontend("GET", f"{BACKFILLS}/{created['id']}")).status == 404


async def test_an_acknowledged_backfill_assigns_the_tickets_that_were_put_to_it(frontend: Frontend) -> None:
    backfill = await frontend.k.match.create_backfill(tags=["x"])
    ticket = await frontend.k.match.get_ticket(await frontend.create())
    (kept,) = await frontend.k.match.propose([Match([ticket], backfill=backfill)])
    assert kept.backfill is not None

    # The path says which backfill it is, whatever the body says.
    body = {"backfill_id": "another", "assignment": {"connection": "10.0.0.9:1"}}
    answer = await frontend("POST", f"{BACKFILLS}/{backfill.id}/acknowledge", body)

    assert answer.status == 200
    assert answer.json()["backfill"]["id"] == backfill.id
    assert [each["id"] for each in answer.json()["tickets"]] == [ticket.id]
    assert (await frontend("GET", f"{TICKETS}/{ticket.id}")).json()["assignment"] == {"connection": "10.0.0.9:1"}


async def test_a_client_of_minimatch_creates_watches_and_takes_out_by_connect(frontend: Frontend) -> None:
    async def call(method: str, body: object) -> Answer:
        headers = {"Content-Type": "application/json", "Connect-Protocol-Version": "1"}
        path = f"/openmatch.FrontendService/{method}"
        return await ask(frontend.gateway.url, "POST", path, body, headers=headers)

    created = (await call("CreateTicket", {"ticket": {"searchFields": {"tags": ["x"]}}})).json()
    assert created["persistentField"] == {"ttl": TEN_MINUTES}
    assert (await call("GetTicket", {"ticketId": created["id"]})).json() == created
    assert await frontend.k.match.count() == 1

    assert (await call("DeindexTicket", {"ticketId": created["id"]})).json() == {}
    assert await frontend.k.match.count() == 0

    missing = await call("GetTicket", {"ticketId": "nope"})
    assert (missing.status, missing.json()) == (404, {"code": "not_found", "message": "ticket id: nope not found"})
    invalid = await call("GetTicket", {})
    assert (invalid.status, invalid.json()) == (400, {"code": "invalid_argument", "message": "invalid ticket_id"})
    # minimatch dies of this one.
    empty = await call("CreateTicket", {})
    assert (empty.status, empty.json()) == (400, {"code": "invalid_argument", "message": ".ticket is required"})
