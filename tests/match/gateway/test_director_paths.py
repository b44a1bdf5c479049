"""BackendService and QueryService over HTTP: each of their paths, on real tickets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
from tests.match.gateway.talking import Answer, ask

from kizuna.app import Kizuna, connect
from kizuna.match.director.director import Director
from kizuna.match.director.serving_functions import FunctionCalls
from kizuna.match.gateway import Gateway
from kizuna.match.matches import Match, Waiting
from kizuna.service import running
from kizuna.settings import Settings

EVERYBODY = {"pool": {"name": "everybody"}}


class Served(NamedTuple):
    k: Kizuna
    gateway: Gateway
    functions: Gateway

    async def __call__(self, path: str, body: object = None) -> Answer:
        return await ask(self.gateway.url, "POST", path, body)

    async def results(self, path: str, body: object) -> list[Any]:
        """Of a stream that ends well."""
        answer = await self(path, body)
        assert answer.status == 200, answer.body
        return [json.loads(line)["result"] for line in answer.body.splitlines()]


def pairs(waiting: Waiting) -> list[Match]:
    tickets = sorted(waiting.tickets, key=lambda ticket: ticket.id)
    return [Match(pair) for pair in zip(tickets[::2], tickets[1::2], strict=False)]


@pytest.fixture
async def served(settings: Settings) -> AsyncIterator[Served]:
    async with connect(settings) as k:
        director = Director(k.match, settings.match)

        async def now_s() -> float:
            return 0.0

        functions = Gateway(FunctionCalls(k.match, pairs, now_s, name="pairs").rpcs(), settings.match, port=0)
        gateway = Gateway([*director.backend_rpcs(), *director.query_rpcs()], settings.match, port=0)
        async with running(functions, director, gateway):
            yield Served(k, gateway, functions)


async def test_those_who_wait_are_found_and_their_backfills(served: Served) -> None:
    ticket = await served.k.match.create_ticket(tags=["a"], strings={"mode": "ranked"})
    backfill = await served.k.match.create_backfill(tags=["a"])
    ranked = {"pool": {"stringEqualsFilters": [{"stringArg": "mode", "value": "ranked"}]}}
    tagged = {"pool": {"tag_present_filters": [{"tag": "a"}]}}

    (tickets,) = await served.results("/v1/queryservice/tickets:query", ranked)
    assert [each["id"] for each in tickets["tickets"]] == [ticket.id]
    assert await served.results("/v1/queryservice/ticketids:query", tagged) == [{"ids": [ticket.id]}]
    (backfills,) = await served.results("/v1/queryservice/backfills:query", tagged)
    assert [each["id"] for each in backfills["backfills"]] == [backfill.id]

    nobody = {"pool": {"tag_present_filters": [{"tag": "nobody"}]}}
    assert await served.results("/v1/queryservice/tickets:query", nobody) == []


async def test_a_query_without_a_pool_is_refused(served: Served) -> None:
    for path in ("tickets", "ticketids", "backfills"):
        answer = await served(f"/v1/queryservice/{path}:query", {})
        assert (answer.status, answer.json()["error"]) == (400, {"code": 3, "message": ".pool is required"})


async def test_matches_are_fetched_assigned_and_given_back(served: Served) -> None:
    ids = sorted([(await served.k.match.create_ticket()).id for _ in range(4)])
    wanted = {
        "config": {"host": "127.0.0.1", "port": served.functions.port, "type": "REST"},
        "profile": {"name": "1v1", "pools": [{"name": "everybody"}]},
    }

    fetched = await served.results("/v1/backendservice/matches:fetch", wanted)
    matches = [[ticket["id"] for ticket in each["match"]["tickets"]] for each in fetched]
    assert sorted(matches) == [ids[:2], ids[2:]]
    assert await served.results("/v1/queryservice/ticketids:query", EVERYBODY) == []

    first, second = matches
    group = {"ticketIds": [*first, "nobody"], "assignment": {"connection": "10.0.0.7:7777"}}
    assigned = await served("/v1/backendservice/tickets:assign", {"assignments": [group]})
    assert assigned.json() == {"failures": [{"ticket_id": "nobody", "cause": "TICKET_NOT_FOUND"}]}
    for id_ in first:
        assignment = (await served.k.match.get_ticket(id_)).assignment
        assert assignment is not None
        assert assignment.connection == "10.0.0.7:7777"

    assert (await served("/v1/backendservice/tickets:release", {"ticket_ids": second[:1]})).json() == {}
    assert await served.results("/v1/queryservice/ticketids:query", EVERYBODY) == [{"ids": second[:1]}]
    assert (await served("/v1/backendservice/tickets:releaseall")).json() == {}
    (found,) = await served.results("/v1/queryservice/ticketids:query", EVERYBODY)
    assert sorted(found["ids"]) == sorted(second)


async def test_a_fetch_that_lacks_something_is_refused(served: Served) -> None:
    refusals: dict[str, Any] = {".config is required": {}, ".profile is required": {"config": {}}}
    for text, body in refusals.items():
        answer = await served("/v1/backendservice/matches:fetch", body)
        assert (answer.status, answer.json()["error"]) == (400, {"code": 3, "message": text})


async def test_an_assignment_that_makes_no_sense_is_refused(served: Served) -> None:
    answer = await served("/v1/backendservice/tickets:assign", {"assignments": [{"ticket_ids": ["a"]}]})

    assert (answer.status, answer.json()["code"]) == (400, 3)
    assert answer.json()["message"] == "AssignmentGroup.Assignment is required"


async def test_one_service_is_not_the_other(served: Served) -> None:
    """A director's calls are served where they belong, and nowhere else."""
    answer = await ask(served.functions.url, "POST", "/v1/queryservice/tickets:query", EVERYBODY)

    assert (answer.status, answer.json()) == (404, {"code": 5, "message": "Not Found"})
