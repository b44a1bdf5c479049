"""A match function of ours, served to a director of Open Match's kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from tests.match.director.directing import OWN_CONNECTION, OpenMatch, matches_of, refusal

from kizuna.match import Match, MatchFunction, Waiting
from kizuna.match.director.serving_functions import FunctionCalls
from kizuna.match.openmatch import backend_pb2, matchfunction_pb2, matchfunction_pb2_grpc, messages_pb2
from kizuna.match.serving.grpc_server import GrpcServer
from kizuna.service import running


async def ready() -> list[str]:
    return []


@asynccontextmanager
async def serving(om: OpenMatch, function: MatchFunction) -> AsyncIterator[GrpcServer]:
    calls = FunctionCalls(om.mm, function, om.k.store.time_s)
    server = GrpcServer(calls.rpcs(), om.k.settings.match, port=0, ready=ready)
    async with running(server):
        yield server


def pairs(waiting: Waiting) -> Iterable[Match]:
    for tickets in waiting.pools.values():
        for two in zip(tickets[::2], tickets[1::2], strict=False):
            yield Match(two, score=1.0)


async def pairs_async(waiting: Waiting) -> list[Match]:
    return list(pairs(waiting))


@pytest.mark.parametrize("function", [pairs, pairs_async])
async def test_a_director_fetches_what_our_function_makes(om: OpenMatch, function: MatchFunction) -> None:
    ids = [ticket.id for ticket in await om.tickets(5)]
    async with serving(om, function) as server:
        config = backend_pb2.FunctionConfig(host="127.0.0.1", port=server.port)

        fetched = await matches_of(om.fetch("1v1", config=config))

    assert [[ticket.id for ticket in match.tickets] for match in fetched] == [ids[0:2], ids[2:4]]
    assert {(match.match_profile, match.match_function) for match in fetched} == {("1v1", function.__name__)}
    assert await om.waiting() == {ids[4]}


async def test_the_function_is_shown_pools_backfills_and_the_time(om: OpenMatch) -> None:
    shown: list[Waiting] = []
    pro, casual = await om.ticket(tags=["pro"]), await om.ticket(tags=["casual"])
    backfill = await om.mm.create_backfill(tags=["pro"])

    def look(waiting: Waiting) -> list[Match]:
        shown.append(waiting)
        return []

    profile = messages_pb2.MatchProfile(name="p")
    for name, tag in (("pros", "pro"), ("all", "pro"), ("all", "casual"), ("none", "nobody")):
        profile.pools.add(name=name).tag_present_filters.add(tag=tag)
    async with serving(om, look) as server:
        assert await run(server, matchfunction_pb2.RunRequest(profile=profile)) == []

    [waiting] = shown
    assert {name: [ticket.id for ticket in tickets] for name, tickets in waiting.pools.items()} == {
        "pros": [pro.id],
        "all": [pro.id, casual.id],
        "none": [],
    }
    assert [one.id for one in waiting.backfills["pros"]] == [backfill.id]
    assert waiting.profile.name == "p"
    assert 0 <= waiting.now_s - waiting.pools["pros"][0].created_at < 600


async def test_a_run_without_a_profile_is_refused(om: OpenMatch) -> None:
    async with serving(om, pairs) as server:
        refused = await refusal(run(server, matchfunction_pb2.RunRequest()))

    assert refused == (StatusCode.INVALID_ARGUMENT, ".profile is required")


async def test_a_pool_with_a_time_that_there_is_not_is_refused(om: OpenMatch) -> None:
    request = matchfunction_pb2.RunRequest(profile=messages_pb2.MatchProfile(pools=[messages_pb2.Pool()]))
    request.profile.pools[0].created_after.nanos = -1
    async with serving(om, pairs) as server:
        refused = await refusal(run(server, request))

    assert refused == (StatusCode.INVALID_ARGUMENT, ".invalid created_after value")


async def test_what_our_function_raises_its_caller_is_told(om: OpenMatch) -> None:
    def broken(_: Waiting) -> list[Match]:
        raise ZeroDivisionError("oh")

    async with serving(om, broken) as server:
        request = matchfunction_pb2.RunRequest(profile=messages_pb2.MatchProfile())
        code, text = await refusal(run(server, request))

    assert code is StatusCode.UNKNOWN
    assert "broken" in text
    assert "ZeroDivisionError: oh" in text


async def test_what_our_function_waited_for_and_was_cancelled_is_its_failure(om: OpenMatch) -> None:
    async def cancelled(_: Waiting) -> list[Match]:
        raise asyncio.CancelledError

    async with serving(om, cancelled) as server:
        request = matchfunction_pb2.RunRequest(profile=messages_pb2.MatchProfile())
        code, text = await refusal(run(server, request))

    assert code is StatusCode.UNKNOWN
    assert "what it waited for was cancelled" in text


async def run(server: GrpcServer, request: matchfunction_pb2.RunRequest) -> list[Any]:
    async with grpc.aio.insecure_channel(server.address, OWN_CONNECTION) as channel:
        stub = matchfunction_pb2_grpc.MatchFunctionStub(channel)  # type: ignore[no-untyped-call]
        return [response.proposal async for response in stub.Run(request)]
