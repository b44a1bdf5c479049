"""A match function and an evaluator that tests decide about, served as anybody may serve them."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
from google.protobuf import json_format

from kizuna.match.openmatch import (
    backend_pb2,
    evaluator_pb2,
    evaluator_pb2_grpc,
    matchfunction_pb2,
    matchfunction_pb2_grpc,
    messages_pb2,
)
from kizuna.match.openmatch.pool import POOL

BLOCKING = "blocking"
"""The profile whose function proposes nothing, and does not end until it is told to."""
Function = Callable[[messages_pb2.MatchProfile], AsyncIterator[messages_pb2.Match]]
Evaluate = Callable[[list[messages_pb2.Match]], AsyncIterator[str]]
Judge = Callable[[AsyncIterator[messages_pb2.Match]], AsyncIterator[str]]


def proposing(*matches: messages_pb2.Match) -> Function:
    async def function(_: messages_pb2.MatchProfile) -> AsyncIterator[messages_pb2.Match]:
        for match in matches:
            yield match

    return function


def failing(*matches: messages_pb2.Match) -> Function:
    """Fails behind what it proposes."""

    async def function(_: messages_pb2.MatchProfile) -> AsyncIterator[messages_pb2.Match]:
        for match in matches:
            yield match
        raise ValueError("my custom error")

    return function


def never_ending(*matches: messages_pb2.Match) -> Function:
    async def function(_: messages_pb2.MatchProfile) -> AsyncIterator[messages_pb2.Match]:
        for match in matches:
            yield match
        await asyncio.Event().wait()

    return function


def by_profile(**functions: Function) -> Function:
    """Each profile has a function of its own."""
    return lambda profile: functions[profile.name](profile)


class FunctionServer(matchfunction_pb2_grpc.MatchFunctionServicer, evaluator_pb2_grpc.EvaluatorServicer):
    """`function` and `evaluate` may be replaced at any time, the latter by a `judge` who need not have seen all
    proposals to keep one. What they raise, their callers are told."""

    def __init__(self) -> None:
        self.function: Function = proposing()
        self.evaluate: Evaluate = _all
        self.judge: Judge = self._with_all
        self.blocks = False
        self.unblocked = asyncio.Event()
        self.runs = 0
        self.cancelled = 0
        self.port = 0
        self.rest_port = 0

    @property
    def config(self) -> backend_pb2.FunctionConfig:
        return backend_pb2.FunctionConfig(host="127.0.0.1", port=self.port, type=backend_pb2.FunctionConfig.GRPC)

    @property
    def rest_config(self) -> backend_pb2.FunctionConfig:
        return backend_pb2.FunctionConfig(host="127.0.0.1", port=self.rest_port, type=backend_pb2.FunctionConfig.REST)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def Run(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802 - as the protocol has it
        self.runs += 1
        function = self._blocking if request.profile.name == BLOCKING else self.function
        try:
            async for proposal in function(request.profile):
                yield matchfunction_pb2.RunResponse(proposal=proposal)
        except ValueError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _blocking(self, _: messages_pb2.MatchProfile) -> AsyncIterator[messages_pb2.Match]:
        self.blocks = True
        await self.unblocked.wait()
        return
        yield

    async def Evaluate(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        try:
            async for match_id in self.judge(request.match async for request in requests):
                yield evaluator_pb2.EvaluateResponse(match_id=match_id)
        except ValueError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _with_all(self, matches: AsyncIterator[messages_pb2.Match]) -> AsyncIterator[str]:
        async for match_id in self.evaluate([match async for match in matches]):
            yield match_id

    async def answer_rest(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Chunks that are cut anywhere, as HTTP allows."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        asked = json.loads(await reader.readexactly(length))
        request = json_format.ParseDict(asked, matchfunction_pb2.RunRequest(), descriptor_pool=POOL)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        async for line in self._rest_lines(head, request.profile):
            raw = line.encode() + b"\n"
            for piece in (raw[:7], raw[7:]):
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def _rest_lines(self, head: str, profile: messages_pb2.MatchProfile) -> AsyncIterator[str]:
        if not head.startswith("POST /v1/matchfunction:run HTTP/1.1\r\n"):
            yield json.dumps({"error": {"code": 5, "message": "Not Found"}})
            return
        self.runs += 1
        try:
            async for proposal in self.function(profile):
                response = matchfunction_pb2.RunResponse(proposal=proposal)
                shown = json_format.MessageToDict(response, preserving_proto_field_name=True, descriptor_pool=POOL)
                yield json.dumps({"result": shown})
        except ValueError as error:
            yield json.dumps({"error": {"code": 2, "message": str(error)}})


async def _all(matches: Iterable[messages_pb2.Match]) -> AsyncIterator[str]:
    for match in matches:
        yield match.match_id


@asynccontextmanager
async def functions_served(
    credentials: grpc.ServerCredentials | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FunctionServer]:
    """With credentials, by TLS: those of gRPC, and the same for HTTP."""
    functions = FunctionServer()
    server = grpc.aio.server()
    matchfunction_pb2_grpc.add_MatchFunctionServicer_to_server(functions, server)  # type: ignore[no-untyped-call]
    evaluator_pb2_grpc.add_EvaluatorServicer_to_server(functions, server)  # type: ignore[no-untyped-call]
    functions.port = (
        server.add_secure_port("127.0.0.1:0", credentials) if credentials else server.add_insecure_port("127.0.0.1:0")
    )
    async with AsyncExitStack() as cleanup:
        rest = await cleanup.enter_async_context(
            await asyncio.start_server(functions.answer_rest, "127.0.0.1", 0, ssl=tls)
        )
        functions.rest_port = rest.sockets[0].getsockname()[1]
        await server.start()
        cleanup.push_async_callback(server.stop, None)
        yield functions
