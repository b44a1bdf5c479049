"""What whoever balances load, and tools without our .proto files, ask a server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from tests.match.serving.channels import channel_to, first_of, getting, named, refusal, server_of

from kizuna.match.openmatch import messages_pb2
from kizuna.match.serving.frontend_calls import FrontendCalls
from kizuna.service import running

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
OURS = "openmatch.FrontendService"


class Readiness:
    def __init__(self) -> None:
        self.problems: list[str] = []

    async def __call__(self) -> list[str]:
        return self.problems


@asynccontextmanager
async def health(readiness: Readiness) -> AsyncIterator[Any]:
    server = server_of(getting(named), ready=readiness)
    async with running(server), channel_to(server) as channel:
        yield health_pb2_grpc.HealthStub(channel)


def about(service: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


# health


@pytest.mark.parametrize("service", ["", OURS])
async def test_it_is_serving_while_it_can_do_its_work(service: str) -> None:
    readiness = Readiness()
    async with health(readiness) as stub:
        well = await stub.Check(about(service))
        readiness.problems = ["nobody answers"]
        ill = await stub.Check(about(service))
        readiness.problems = []
        well_again = await stub.Check(about(service))

    assert [answer.status for answer in (well, ill, well_again)] == [SERVING, NOT_SERVING, SERVING]


async def test_who_watches_is_told_of_each_change() -> None:
    readiness = Readiness()
    async with health(readiness) as stub:
        stream = stub.Watch(about(OURS))
        told = [(await first_of(stream)).status]
        readiness.problems = ["nobody answers"]
        told.append((await asyncio.wait_for(first_of(stream), 20)).status)
        readiness.problems = []
        told.append((await asyncio.wait_for(first_of(stream), 20)).status)

    assert told == [SERVING, NOT_SERVING, SERVING]


async def test_a_service_that_is_not_here_is_not_found() -> None:
    async with health(Readiness()) as stub:
        code, _ = await refusal(stub.Check(about("shop.Shop")))
        watched = await first_of(stub.Watch(about("shop.Shop")))

    assert code is StatusCode.NOT_FOUND
    assert watched.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


# reflection

TODAY = "grpc.reflection.v1.ServerReflection"


class Tool:
    """As grpcurl does it: with messages made of the files that the server tells."""

    def __init__(self, channel: Any, service: str) -> None:
        self._call = channel.stream_stream(
            f"/{service}/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )

    async def ask(self, **question: str) -> Any:
        stream = self._call()
        await stream.write(reflection_pb2.ServerReflectionRequest(**question))
        answer = await stream.read()
        await stream.done_writing()
        return answer

    async def services(self) -> set[str]:
        answer = await self.ask(list_services="")
        return {service.name for service in answer.list_services_response.service}

    async def pool_of(self, symbol: str) -> DescriptorPool:
        """Of the files that hold the symbol and all that it needs, and of nothing else."""
        answer = await self.ask(file_containing_symbol=symbol)
        return pool_of(answer.file_descriptor_response.file_descriptor_proto)


def pool_of(files: list[bytes]) -> DescriptorPool:
    pool, parsed = DescriptorPool(), map(descriptor_pb2.FileDescriptorProto.FromString, files)
    waiting = {file.name: file for file in parsed}

    def add(name: str) -> None:
        file = waiting.pop(name, None)
        if file is not None:
            for dependency in file.dependency:
                add(dependency)
            pool.Add(file)

    for name in list(waiting):
        add(name)
    return pool


@pytest.mark.parametrize("version", ["v1alpha", "v1"])
async def test_a_tool_finds_every_method_and_can_call_it(version: str) -> None:
    calls = [rpc for rpc in FrontendCalls(None).rpcs() if rpc.method != "GetTicket"]  # type: ignore[arg-type]
    server = server_of(*calls, getting(named))
    async with running(server), channel_to(server) as channel:
        tool = Tool(channel, f"grpc.reflection.{version}.ServerReflection")
        services = await tool.services()
        pool = await tool.pool_of(OURS)
        method = pool.FindMethodByName(f"{OURS}.GetTicket")
        request, response = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
        call = channel.unary_unary(f"/{OURS}/GetTicket", request.SerializeToString, response.FromString)
        ticket = await call(request(ticket_id="a"))

    reflecting = {"grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection"}
    assert services == {OURS, "grpc.health.v1.Health"} | reflecting
    methods = {method.name for method in pool.FindServiceByName(OURS).methods}
    assert methods == {rpc.method for rpc in server._rpcs}
    assert len(methods) == 10
    assert ticket.id == "a"
    assert type(ticket) is not messages_pb2.Ticket


@pytest.mark.parametrize(
    "symbol",
    [
        "openmatch.Ticket",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ErrorResponse",
        "grpc.reflection.v1.ServerReflection",
    ],
)
async def test_a_tool_finds_all_that_is_served_with_what_it_needs(symbol: str) -> None:
    server = server_of(getting(named))
    async with running(server), channel_to(server) as channel:
        pool = await Tool(channel, "grpc.reflection.v1alpha.ServerReflection").pool_of(symbol)

    assert pool.FindFileContainingSymbol(symbol)


async def test_a_tool_that_knows_the_newer_name_only_learns_to_ask_by_it() -> None:
    server = server_of(getting(named))
    async with running(server), channel_to(server) as channel:
        pool = await Tool(channel, TODAY).pool_of(TODAY)
        method = pool.FindMethodByName(f"{TODAY}.ServerReflectionInfo")
        request, response = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
        stream = channel.stream_stream(f"/{TODAY}/{method.name}", request.SerializeToString, response.FromString)()
        await stream.write(request(list_services=""))
        answer = await stream.read()
        await stream.done_writing()

    assert request.DESCRIPTOR.full_name == "grpc.reflection.v1.ServerReflectionRequest"
    assert OURS in {service.name for service in answer.list_services_response.service}


async def test_a_tool_that_asks_for_what_is_not_here_is_told() -> None:
    server = server_of(getting(named))
    async with running(server), channel_to(server) as channel:
        answer = await Tool(channel, "grpc.reflection.v1alpha.ServerReflection").ask(file_containing_symbol="shop.Shop")

    assert answer.error_response.error_code == StatusCode.NOT_FOUND.value[0]


# beside stubs of others


def test_stubs_of_others_for_the_same_names_live_in_one_process_with_ours() -> None:
    program = """
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from kizuna.match.openmatch import messages_pb2

# As stubs that were generated elsewhere do: the same names, at another path, in the pool that all share.
file = descriptor_pb2.FileDescriptorProto.FromString(messages_pb2.DESCRIPTOR.serialized_pb)
file.name = "api/messages.proto"
descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
Theirs = message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName("openmatch.Ticket"))

assert Theirs is not messages_pb2.Ticket
theirs = Theirs(id="a")
theirs.search_fields.tags.append("b")
theirs.create_time.GetCurrentTime()
ours = messages_pb2.Ticket.FromString(theirs.SerializeToString())
assert Theirs.FromString(ours.SerializeToString()) == theirs
print(ours.id, *ours.search_fields.tags)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (ended.stdout, ended.stderr) == ("a b\n", "")
