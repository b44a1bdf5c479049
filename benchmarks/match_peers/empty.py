"""A gRPC service of Python that answers and does nothing else: what no frontend of Python can be faster than."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from kizuna.testing.servers import HOST

ANSWER = b"\n\x14d4c9p0hksdu8s4r9ql2g"
"""A ticket that has an id."""


@asynccontextmanager
async def frontend() -> AsyncIterator[str]:
    server = grpc.aio.server()
    methods = {"CreateTicket": grpc.unary_unary_rpc_method_handler(_create)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("openmatch.FrontendService", methods),))
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    yield f"{HOST}:{port}"
    await server.stop(grace=None)


async def _create(_: bytes, context: Any) -> bytes:
    return ANSWER
