"""NATS: request and reply of its core, which stores nothing, through nats-py."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats

from benchmarks.peer_roles import URL
from benchmarks.unit_peers.roles import NAME, REPLY_WITHIN_S, Call


@asynccontextmanager
async def responding() -> AsyncIterator[None]:
    connection = await _connection()
    await connection.subscribe(NAME, cb=_echo)
    await connection.flush()
    yield
    await connection.close()


@asynccontextmanager
async def calling() -> AsyncIterator[Call]:
    connection = await _connection()

    async def call(data: bytes) -> bytes:
        reply = await connection.request(NAME, data, timeout=REPLY_WITHIN_S)
        return bytes(reply.data)

    yield call
    await connection.close()


async def _echo(message: Any) -> None:
    await message.respond(message.data)


def serve() -> None:
    host, _, port = URL.partition(":")
    # Installed next to the packages of this peer.
    binary = Path(nats.__file__).parents[1] / "bin" / "nats-server"
    subprocess.run([binary, "--addr", host, "--port", port])


async def _connection() -> Any:
    return await nats.connect(f"nats://{URL}", max_reconnect_attempts=50, reconnect_time_wait=0.1)
