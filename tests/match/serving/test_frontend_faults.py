"""FrontendService while its store is away, and after it has come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest_asyncio
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.match.serving.channels import channel_to, first_of, frontend, refusal

from kizuna.app import Kizuna, connect
from kizuna.match import Assignment, Group
from kizuna.match.openmatch.frontend_pb2 import CreateTicketRequest, GetTicketRequest, WatchAssignmentsRequest
from kizuna.match.openmatch.messages_pb2 import Ticket
from kizuna.match.serving.frontend_calls import FrontendCalls
from kizuna.match.serving.grpc_server import GrpcServer
from kizuna.service import running
from kizuna.settings import Settings
from kizuna.store.health.watch import ServerWatch
from kizuna.testing.fixtures import MakeProxy
from kizuna.testing.proxy import ChaosProxy
from kizuna.testing.waiting import eventually

A_TICKET = CreateTicketRequest(ticket=Ticket())


class Far:
    """A frontend whose way to its store is a proxy; `near` is somebody with another way."""

    def __init__(self, network: ChaosProxy, k: Kizuna, near: Kizuna, channel: Any) -> None:
        self.network, self.k, self.near = network, k, near
        self.stub, self.health = frontend(channel), health_pb2_grpc.HealthStub(channel)


@pytest_asyncio.fixture
async def far(proxy: MakeProxy, settings: Settings) -> AsyncIterator[Far]:
    network = await proxy()
    store = msgspec.structs.replace(settings.store, url=network.url, timeout_s=2.0)
    async with connect(msgspec.structs.replace(settings, store=store)) as k, connect(settings) as near:
        ready = ServerWatch(k.store).problems
        server = GrpcServer(FrontendCalls(k.match).rpcs(), settings.match, port=0, ready=ready)
        async with running(server), channel_to(server) as channel:
            yield Far(network, k, near, channel)


async def test_a_watcher_hears_although_the_connection_to_the_store_was_cut(far: Far) -> None:
    ticket = await far.stub.CreateTicket(A_TICKET)
    told = asyncio.ensure_future(first_of(far.stub.WatchAssignments(WatchAssignmentsRequest(ticket_id=ticket.id))))
    await eventually(lambda: far.k.match.watchers.number == 1, within_s=20)
    far.network.refuse()
    await far.network.cut()
    await far.near.match.assign_tickets([Group([ticket.id], Assignment("host:1"))])
    await far.network.accept()

    assert (await asyncio.wait_for(told, 40)).assignment.connection == "host:1"


async def test_while_the_store_is_away_calls_are_unavailable_and_then_work_again(far: Far) -> None:
    ticket = await far.stub.CreateTicket(A_TICKET)
    far.network.refuse()
    await far.network.cut()

    code, text = await refusal(far.stub.GetTicket(GetTicketRequest(ticket_id=ticket.id)))
    assert code in (StatusCode.UNAVAILABLE, StatusCode.UNKNOWN)
    assert far.network.address not in text
    await far.network.accept()

    async def answered() -> bool:
        try:
            return bool((await far.stub.GetTicket(GetTicketRequest(ticket_id=ticket.id))).id == ticket.id)
        except Exception as error:
            raise AssertionError(str(error)) from error

    await eventually(answered, within_s=40)


async def test_health_follows_the_store(far: Far) -> None:
    stream = far.health.Watch(health_pb2.HealthCheckRequest(service="openmatch.FrontendService"))
    told = [(await asyncio.wait_for(first_of(stream), 40)).status]
    far.network.refuse()
    await far.network.cut()
    told.append((await asyncio.wait_for(first_of(stream), 40)).status)
    await far.network.accept()
    told.append((await asyncio.wait_for(first_of(stream), 40)).status)

    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    assert told == [serving, not_serving, serving]
