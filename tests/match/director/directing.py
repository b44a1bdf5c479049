"""Open Match as a director sees it: our services over gRPC, and a match function that the test decides about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf.message import Message
from grpc import StatusCode
from tests.match.director.functions import BLOCKING, Evaluate, Function, FunctionServer, Judge, functions_served

from kizuna import connect
from kizuna.app import Kizuna
from kizuna.match.director.director import Director
from kizuna.match.matches import Evaluator
from kizuna.match.openmatch import (
    backend_pb2,
    backend_pb2_grpc,
    extensions_pb2,
    frontend_pb2_grpc,
    messages_pb2,
    query_pb2,
    query_pb2_grpc,
)
from kizuna.match.serving.frontend_calls import FrontendCalls
from kizuna.match.serving.grpc_server import GrpcServer
from kizuna.service import running
from kizuna.settings import MatchSettings, Settings
from kizuna.testing import eventually

OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
EVERYONE = messages_pb2.Pool(name="everyone")


class OpenMatch:
    def __init__(self, k: Kizuna, functions: FunctionServer, director: Director, channel: Any) -> None:
        self.k, self.mm, self.functions, self.director = k, k.match, functions, director
        self.frontend: Any = frontend_pb2_grpc.FrontendServiceStub(channel)  # type: ignore[no-untyped-call]
        self.backend: Any = backend_pb2_grpc.BackendServiceStub(channel)  # type: ignore[no-untyped-call]
        self.query: Any = query_pb2_grpc.QueryServiceStub(channel)  # type: ignore[no-untyped-call]

    async def ticket(self, **fields: Any) -> messages_pb2.Ticket:
        return (await self.mm.create_ticket(**fields)).message

    async def tickets(self, how_many: int) -> list[messages_pb2.Ticket]:
        return [await self.ticket() for _ in range(how_many)]

    def fetch(self, profile: str = "any", config: backend_pb2.FunctionConfig | None = None) -> Any:
        """A stream, to be read."""
        return self.backend.FetchMatches(self.request(profile, config))

    def request(
        self, profile: str = "any", config: backend_pb2.FunctionConfig | None = None
    ) -> backend_pb2.FetchMatchesRequest:
        wanted = messages_pb2.MatchProfile(name=profile, pools=[EVERYONE])
        return backend_pb2.FetchMatchesRequest(config=config or self.functions.config, profile=wanted)

    async def fetched(self, function: Function, profile: str = "any") -> list[messages_pb2.Match]:
        self.functions.function = function
        return await matches_of(self.fetch(profile))

    async def fetch_together(self, *profiles: str) -> list[Any]:
        """Streams of one cycle, for they have waited together for the one before it."""
        before = self.fetch(BLOCKING)
        await eventually(lambda: self.functions.blocks and not self._can_be_joined(), within_s=20)
        streams = [self.fetch(profile) for profile in profiles]
        await eventually(lambda: self.director.under_way == 1 + len(streams), within_s=20)
        self.functions.unblocked.set()
        assert await matches_of(before) == []
        return streams

    def _can_be_joined(self) -> bool:
        newest = self.director._synchronizer._newest
        return newest is not None and newest.is_open

    async def waiting(self) -> set[str]:
        """The tickets that a match function would be shown."""
        request = query_pb2.QueryTicketIdsRequest(pool=EVERYONE)
        return {id_ async for page in self.query.QueryTicketIds(request) for id_ in page.ids}

    async def nobody_waits(self) -> bool:
        return await self.waiting() == set()

    async def assign(self, connection: str, *ids: str) -> backend_pb2.AssignTicketsResponse:
        assignment = messages_pb2.Assignment(connection=connection)
        group = messages_pb2.AssignmentGroup(ticket_ids=ids, assignment=assignment)
        answer: backend_pb2.AssignTicketsResponse = await self.backend.AssignTickets(
            backend_pb2.AssignTicketsRequest(assignments=[group])
        )
        return answer

    def pairs_of_all_who_wait(self) -> Function:
        """Asks our QueryService, as match functions do."""

        async def function(profile: messages_pb2.MatchProfile) -> AsyncIterator[messages_pb2.Match]:
            for pool in profile.pools:
                pages = self.query.QueryTickets(query_pb2.QueryTicketsRequest(pool=pool))
                tickets = [ticket async for page in pages for ticket in page.tickets]
                for two in zip(tickets[::2], tickets[1::2], strict=False):
                    yield match_of(f"{profile.name}-{two[0].id}-{two[1].id}", *two)

        return function


@asynccontextmanager
async def open_match(
    settings: Settings,
    evaluator: Evaluator | None = None,
    *,
    evaluate: Evaluate | None = None,
    judge: Judge | None = None,
    evaluator_at: str = "",
    **changes: Any,
) -> AsyncIterator[OpenMatch]:
    """`changes` are of the settings of match. With `evaluate` or `judge`, a service decides that the director asks."""
    async with functions_served() as functions:
        if evaluate is not None:
            functions.evaluate, evaluator_at = evaluate, functions.address
        if judge is not None:
            functions.judge, evaluator_at = judge, functions.address
        changes["evaluator"] = evaluator_at
        settings = msgspec.structs.replace(settings, match=MatchSettings(**changes))
        async with connect(settings) as k:
            director = Director(k.match, k.settings.match, evaluator)
            async with _served(k, director) as channel:
                yield OpenMatch(k, functions, director, channel)


@asynccontextmanager
async def _served(k: Kizuna, director: Director) -> AsyncIterator[Any]:
    rpcs = [*director.backend_rpcs(), *director.query_rpcs(), *FrontendCalls(k.match).rpcs()]
    server = GrpcServer(rpcs, k.settings.match, port=0, ready=_ready)
    async with running(director, server), grpc.aio.insecure_channel(server.address, OWN_CONNECTION) as channel:
        yield channel


async def _ready() -> list[str]:
    return []


def match_of(id_: str, *tickets: messages_pb2.Ticket, score: float | None = None, **fields: Any) -> messages_pb2.Match:
    match = messages_pb2.Match(match_id=id_, tickets=tickets, **fields)
    if score is not None:
        match.extensions["evaluation_input"].Pack(extensions_pb2.DefaultEvaluationCriteria(score=score))
    return match


async def matches_of(stream: Any) -> list[messages_pb2.Match]:
    return [response.match async for response in stream]


async def refusal(call: Awaitable[object]) -> tuple[StatusCode, str]:
    """How it was refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), refused.value.details() or ""


def same(one: Message, other: Message) -> bool:
    return one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)
