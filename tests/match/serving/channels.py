"""Calls of a test's own, served; and channels to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc import StatusCode

from kizuna.match.openmatch import frontend_pb2, frontend_pb2_grpc, messages_pb2
from kizuna.match.serving.grpc_server import GrpcServer
from kizuna.match.serving.rpcs import Rpc
from kizuna.service import running
from kizuna.settings import MatchSettings

# Else channels to one port share a connection, also one that a server of an earlier test has closed.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


async def ready() -> list[str]:
    return []


def getting(call: Callable[[Any], Awaitable[Any]]) -> Rpc:
    """GetTicket, done by `call`."""
    request, service = frontend_pb2.GetTicketRequest, "openmatch.FrontendService"
    return Rpc(service, "GetTicket", request, messages_pb2.Ticket, call)


def watching(call: Callable[[Any], AsyncIterator[Any]], *, endless: bool = True) -> Rpc:
    """WatchAssignments, done by `call`."""
    request, response = frontend_pb2.WatchAssignmentsRequest, frontend_pb2.WatchAssignmentsResponse
    service = "openmatch.FrontendService"
    return Rpc(service, "WatchAssignments", request, response, call, streams=True, endless=endless)


async def named(request: Any) -> messages_pb2.Ticket:
    return messages_pb2.Ticket(id=request.ticket_id)


def server_of(*rpcs: Rpc, **changes: Any) -> GrpcServer:
    return GrpcServer(rpcs, **{"settings": MatchSettings(), "port": 0, "ready": ready, **changes})


def channel_to(server: GrpcServer) -> AbstractAsyncContextManager[Any]:
    channel: AbstractAsyncContextManager[Any] = grpc.aio.insecure_channel(server.address, options=OWN_CONNECTION)
    return channel


def frontend(channel: Any) -> Any:
    return frontend_pb2_grpc.FrontendServiceStub(channel)  # type: ignore[no-untyped-call]


@asynccontextmanager
async def served(*rpcs: Rpc, **changes: Any) -> AsyncIterator[Any]:
    """The stub of a frontend that answers these."""
    server = server_of(*rpcs, **changes)
    async with running(server), channel_to(server) as channel:
        yield frontend(channel)


async def refusal(call: Awaitable[Any]) -> tuple[StatusCode, str]:
    """How it was refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), refused.value.details() or ""


async def first_of(stream: AsyncIterator[Any]) -> Any:
    return await anext(aiter(stream))
