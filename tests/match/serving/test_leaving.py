"""A server that is told to stop: who is told, who is waited for, who is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.match.serving.channels import channel_to, first_of, frontend, getting, named, refusal, server_of, watching

from kizuna.match.openmatch import frontend_pb2
from kizuna.match.serving.grpc_server import GrpcServer
from kizuna.testing.waiting import eventually

A_TICKET = frontend_pb2.GetTicketRequest(ticket_id="a")
A_WATCH = frontend_pb2.WatchAssignmentsRequest(ticket_id="a")
LEFT = (StatusCode.UNAVAILABLE, "this server is about to end; connect again")


async def started(server: GrpcServer) -> asyncio.Task[None]:
    works = asyncio.Event()
    task = asyncio.create_task(server.run(works))
    await asyncio.wait_for(works.wait(), 10)
    return task


async def for_ever(_: Any) -> AsyncIterator[Any]:
    yield frontend_pb2.WatchAssignmentsResponse()
    await asyncio.Event().wait()


async def test_watchers_are_told_to_connect_elsewhere_and_are_not_waited_for() -> None:
    server = server_of(watching(for_ever), grace_s=600)
    running = await started(server)
    async with channel_to(server) as channel:
        streams = [frontend(channel).WatchAssignments(A_WATCH) for _ in range(20)]
        for stream in streams:
            await first_of(stream)
        running.cancel()

        assert [await refusal(first_of(stream)) for stream in streams] == [LEFT] * 20
        await asyncio.wait([running], timeout=20)
    assert running.cancelled()


async def test_streams_are_ended_between_two_messages(caplog: pytest.LogCaptureFixture) -> None:
    async def flooding(_: Any) -> AsyncIterator[Any]:
        while True:
            yield frontend_pb2.WatchAssignmentsResponse(assignment={"connection": "x" * 10_000})

    async def read_to_its_end(stream: Any) -> tuple[StatusCode, str]:
        async def read() -> None:
            async for _ in stream:
                pass

        return await refusal(read())

    server = server_of(watching(flooding), grace_s=600)
    running = await started(server)
    async with channel_to(server) as channel:
        streams = [frontend(channel).WatchAssignments(A_WATCH) for _ in range(10)]
        for stream in streams:
            await first_of(stream)
        ends = [asyncio.ensure_future(read_to_its_end(stream)) for stream in streams]
        running.cancel()

        assert await asyncio.gather(*ends) == [LEFT] * 10
        await asyncio.wait([running], timeout=20)
    assert running.cancelled()
    # gRPC logs what it could not do.
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_call_that_is_under_way_is_answered() -> None:
    working, may_end = asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> Any:
        working.set()
        await may_end.wait()
        return await named(request)

    server = server_of(getting(slow), watching(for_ever), grace_s=600)
    running = await started(server)
    async with channel_to(server) as channel, channel_to(server) as other:
        call = asyncio.ensure_future(frontend(channel).GetTicket(A_TICKET))
        stream = frontend(other).WatchAssignments(A_WATCH)
        await first_of(stream)
        await asyncio.wait_for(working.wait(), 10)
        running.cancel()
        # Whoever watches is told first, so by then it is leaving; and the call is not answered yet.
        assert await refusal(first_of(stream)) == LEFT
        may_end.set()

        assert (await call).id == "a"
        await asyncio.wait([running], timeout=20)
    assert running.cancelled()


@pytest.mark.parametrize("why", ["the grace is over", "told again"])
async def test_a_call_that_takes_too_long_is_cut_off(why: str) -> None:
    working = asyncio.Event()

    async def stuck(_: Any) -> Any:
        working.set()
        await asyncio.Event().wait()

    server = server_of(getting(stuck), grace_s=0.1 if why == "the grace is over" else 600)
    running = await started(server)
    async with channel_to(server) as channel:
        call = asyncio.ensure_future(frontend(channel).GetTicket(A_TICKET))
        await asyncio.wait_for(working.wait(), 10)
        running.cancel()
        if why == "told again":
            await asyncio.sleep(0)
            running.cancel()

        code, _ = await refusal(call)
        await asyncio.wait([running], timeout=20)
    assert code in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)
    assert running.cancelled()


async def test_who_watches_its_health_is_told_before_it_ends() -> None:
    server = server_of(getting(named), grace_s=600)
    running = await started(server)
    async with channel_to(server) as channel:
        stream = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        first = await first_of(stream)
        running.cancel()
        second = await first_of(stream)

        assert [first.status, second.status] == [
            health_pb2.HealthCheckResponse.SERVING,
            health_pb2.HealthCheckResponse.NOT_SERVING,
        ]
        assert await refusal(first_of(stream)) == LEFT
        await asyncio.wait([running], timeout=20)
    assert running.cancelled()


async def test_a_tool_that_keeps_its_stream_of_questions_open_does_not_keep_it_from_ending() -> None:
    server = server_of(getting(named), grace_s=600)
    running = await started(server)
    async with channel_to(server) as channel:
        stream = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        await stream.read()
        running.cancel()

        await asyncio.wait([running], timeout=20)
    assert running.cancelled()


async def test_nobody_is_let_in_any_more() -> None:
    server = server_of(getting(named))
    running = await started(server)
    async with channel_to(server) as channel:
        await frontend(channel).GetTicket(A_TICKET)
        running.cancel()
        await asyncio.wait([running], timeout=20)

        async def refused() -> bool:
            return (await refusal(frontend(channel).GetTicket(A_TICKET)))[0] is StatusCode.UNAVAILABLE

        await eventually(refused, within_s=20)
