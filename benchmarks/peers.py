"""The clients that we are measured against, opened as their documentation says."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redis.asyncio import Redis

if TYPE_CHECKING:
    from glide import GlideClient


@asynccontextmanager
async def redis_py(url: str, connections: int) -> AsyncIterator[Redis]:
    """redis-py with its defaults, which include hiredis. Its pool raises an error for the 101st caller unless
    it is told a higher number, so that is what it is told."""
    client: Redis = Redis.from_url(url, max_connections=connections)
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def glide(url: str, callers: int) -> AsyncIterator[GlideClient]:
    """valkey-glide with its defaults. It refuses more than 1,000 requests in flight unless told otherwise."""
    from glide import GlideClient, GlideClientConfiguration, NodeAddress

    parts = urlsplit(url)
    address = NodeAddress(parts.hostname or "127.0.0.1", parts.port or 6379)
    client = await GlideClient.create(GlideClientConfiguration([address], inflight_requests_limit=2 * callers))
    try:
        yield client
    finally:
        await client.close()


def bare_round_trip_us(url: str, round_trips: int = 2_000) -> float:
    """A SET and its answer over a blocking socket, without any client: what nobody who waits can be faster than."""
    parts = urlsplit(url)
    command = b"*3\r\n$3\r\nSET\r\n$9\r\nbenchmark\r\n$100\r\n" + b"v" * 100 + b"\r\n"
    took = []
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(round_trips):
            began = time.perf_counter()
            connection.sendall(command)
            connection.recv(64)
            took.append(time.perf_counter() - began)
    return median(took) * 1e6


async def pipeline(client: Redis, commands: list[tuple[Any, ...]]) -> None:
    """What people write by hand where redis-py is too slow."""
    pipe = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command)
    await pipe.execute()
