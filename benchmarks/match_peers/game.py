"""A game of Python, where Go is missing: what load/ does, and slower, so that part of what it measures is itself."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc

from benchmarks.match_peers import roles
from kizuna.match.openmatch import frontend_pb2, messages_pb2

CONNECTIONS = 8
SERVICE = "/openmatch.FrontendService/"


@asynccontextmanager
async def game() -> AsyncIterator[None]:
    yield


async def create(_: None, targets: Sequence[str], in_flight: int, seconds: float) -> dict[str, Any]:
    async with _players(targets) as player:
        return await roles.create(player, in_flight, seconds)


async def play(_: None, targets: Sequence[str], per_second: float, seconds: float, wait_s: float) -> dict[str, Any]:
    async with _players(targets) as player:
        return await roles.play(player, per_second, seconds, wait_s)


ORDERS = {"stand": roles.be_ready, "create": create, "play": play}


class _Player:
    def __init__(self, channels: Sequence[Any]) -> None:
        self._channels = itertools.cycle(channels)

    async def create(self) -> str:
        call = next(self._channels).unary_unary(
            f"{SERVICE}CreateTicket", _TICKET.SerializeToString, messages_pb2.Ticket.FromString
        )
        ticket: messages_pb2.Ticket = await call(_TICKET)
        return ticket.id

    async def assignment(self, ticket: str, within_s: float) -> object:
        watch = next(self._channels).unary_stream(
            f"{SERVICE}WatchAssignments",
            frontend_pb2.WatchAssignmentsRequest.SerializeToString,
            frontend_pb2.WatchAssignmentsResponse.FromString,
        )
        call = watch(frontend_pb2.WatchAssignmentsRequest(ticket_id=ticket), timeout=within_s)
        first = await call.read()
        call.cancel()
        return first


@asynccontextmanager
async def _players(targets: Sequence[str]) -> AsyncIterator[_Player]:
    async with AsyncExitStack() as stack:
        channels = []
        for target in itertools.islice(itertools.cycle(targets), CONNECTIONS):
            # A connection of its own, as with Go.
            alone = [("grpc.use_local_subchannel_pool", 1)]
            channels.append(await stack.enter_async_context(grpc.aio.insecure_channel(target, options=alone)))
        yield _Player(channels)


_TICKET = frontend_pb2.CreateTicketRequest(
    ticket=messages_pb2.Ticket(
        search_fields=messages_pb2.SearchFields(
            tags=["eu-west"], string_args={"mode": "ranked"}, double_args={"skill": 1500.0}
        )
    )
)
