"""Match functions that others serve, called as Open Match calls them: over gRPC, or over HTTP JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

import grpc.aio
from grpc import StatusCode

from kizuna.errors import FunctionFailed
from kizuna.listening import address_of
from kizuna.match.director.channels import LARGEST_BYTES
from kizuna.match.director.rest_functions import run_over_rest
from kizuna.match.openmatch import backend_pb2, matchfunction_pb2, matchfunction_pb2_grpc, messages_pb2
from kizuna.match.serving.statuses import BadCall

if TYPE_CHECKING:
    from kizuna.match.director.channels import Channels
    from kizuna.match.director.function_tls import FunctionTls

LARGEST_ALL = 4 * LARGEST_BYTES
"""Nor may all answers of a function together."""


class RemoteFunction(Protocol):
    address: str

    def run(self, profile: messages_pb2.MatchProfile) -> AsyncGenerator[messages_pb2.Match, None]:
        """What it proposes, as it comes. FunctionFailed if it does not end well; closing it ends the function."""


class RemoteFunctions:
    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    def at(self, config: backend_pb2.FunctionConfig) -> RemoteFunction:
        """BadCall if this cannot be the place of a function; whether there is one, shows when it is run."""
        if not config.host or not 0 < config.port < 65536 or any(sign in config.host for sign in " /\r\n\t"):
            text = f".config names no host and port of a match function: {config.host!r}, {config.port}"
            raise BadCall(StatusCode.INVALID_ARGUMENT, text)
        if config.type == backend_pb2.FunctionConfig.GRPC:
            return _Bounded(GrpcFunction(self._channels, address_of(config.host, config.port)))
        if config.type == backend_pb2.FunctionConfig.REST:
            return _Bounded(RestFunction(config.host, config.port, self._channels.tls))
        raise BadCall(StatusCode.INVALID_ARGUMENT, "provided match function type is not supported")


class GrpcFunction:
    def __init__(self, channels: Channels, address: str) -> None:
        self._channels = channels
        self.address = address

    async def run(self, profile: messages_pb2.MatchProfile) -> AsyncGenerator[messages_pb2.Match, None]:
        with self._channels.to(self.address) as channel:
            stub = matchfunction_pb2_grpc.MatchFunctionStub(channel)  # type: ignore[no-untyped-call]
            call = stub.Run(matchfunction_pb2.RunRequest(profile=profile))
            try:
                async for response in call:
                    yield response.proposal
            except grpc.aio.AioRpcError as error:
                raise FunctionFailed(self.address, f"{error.code().name}: {error.details()}") from error
            except asyncio.CancelledError as error:
                # gRPC raises it, too, when it was not us who were cancelled but the channel that was closed.
                if _is_cancelled():
                    raise
                raise FunctionFailed(self.address, "the connection to it was closed") from error
            finally:
                call.cancel()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class RestFunction:
    def __init__(self, host: str, port: int, tls: FunctionTls) -> None:
        self._host, self._port, self._tls = host, port, tls
        self.address = address_of(host, port)

    async def run(self, profile: messages_pb2.MatchProfile) -> AsyncGenerator[messages_pb2.Match, None]:
        run = run_over_rest(self._host, self._port, profile, LARGEST_BYTES, self._tls.context)
        async with aclosing(run) as proposals:
            async for proposal in proposals:
                yield proposal


class _Bounded:
    """No function may fill our memory with what it proposes."""

    def __init__(self, function: GrpcFunction | RestFunction) -> None:
        self._function = function
        self.address = function.address

    async def run(self, profile: messages_pb2.MatchProfile) -> AsyncGenerator[messages_pb2.Match, None]:
        size = 0
        async with aclosing(self._function.run(profile)) as proposals:
            async for proposal in proposals:
                size += proposal.ByteSize()
                if size > LARGEST_ALL:
                    raise FunctionFailed(self.address, f"it proposed more than {LARGEST_ALL} bytes of matches")
                yield proposal
