"""gRPC: a unary call through grpc.aio. Without Protocol Buffers, since bytes are sent: that is the least it does.

The responder is the server; there is no third process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from benchmarks.peer_roles import URL
from benchmarks.unit_peers.roles import NAME, REPLY_WITHIN_S, Call

SERVICE = "benchmark.Units"


@asynccontextmanager
async def responding() -> AsyncIterator[None]:
    server = grpc.aio.server()
    methods = {NAME: grpc.unary_unary_rpc_method_handler(_echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    server.add_insecure_port(URL)
    await server.start()
    yield
    await server.stop(grace=None)


@asynccontextmanager
async def calling() -> AsyncIterator[Call]:
    async with grpc.aio.insecure_channel(URL) as channel:
        method = channel.unary_unary(f"/{SERVICE}/{NAME}")

        async def call(data: bytes) -> bytes:
            return bytes(await method(data, timeout=REPLY_WITHIN_S))

        yield call


async def _echo(data: bytes, context: Any) -> bytes:
    return data
