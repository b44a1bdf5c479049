"""Commands that a server did not run: followed for the caller's time, and for no longer than anybody wants them."""

from __future__ import annotations

import asyncio
import time

import pytest

from kizuna.app import connect
from kizuna.errors import NotPrimary
from kizuna.settings import Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.testing import ServerProcess, eventually


def at(server: ServerProcess, **options: float) -> Settings:
    return Settings(store=StoreSettings(url=server.url, **options))  # type: ignore[arg-type]


def followed(store: Store) -> int:
    return len(store._follower._tasks)


def make_replica(server: ServerProcess) -> None:
    server.call("REPLICAOF", "127.0.0.1", 1)


async def test_a_write_waits_for_its_server_to_become_the_primary_again(fresh_server: ServerProcess) -> None:
    async with connect(at(fresh_server)) as k:
        make_replica(fresh_server)
        writing = k.store.call("SET", "k", "v")
        await eventually(lambda: followed(k.store) == 1)
        assert not writing.done()
        fresh_server.call("REPLICAOF", "NO", "ONE")

        assert await writing == b"OK"
        await eventually(lambda: followed(k.store) == 0)


async def test_when_the_time_is_up_the_caller_gets_what_the_server_said(fresh_server: ServerProcess) -> None:
    async with connect(at(fresh_server)) as k:
        make_replica(fresh_server)
        began = time.monotonic()
        with pytest.raises(NotPrimary, match="READONLY"):
            await k.store.call("SET", "k", "v", timeout_s=1)

        assert time.monotonic() - began < 2


async def test_nobody_follows_a_command_that_nobody_waits_for(fresh_server: ServerProcess) -> None:
    async with connect(at(fresh_server)) as k:
        make_replica(fresh_server)
        writing = k.store.call("SET", "k", "v")
        await eventually(lambda: followed(k.store) == 1)
        writing.cancel()
        await eventually(lambda: followed(k.store) == 0)
        fresh_server.call("REPLICAOF", "NO", "ONE")

        assert await k.store.get("k") is None


async def test_closing_ends_what_is_followed_with_what_the_server_said(fresh_server: ServerProcess) -> None:
    k = await connect(at(fresh_server))
    make_replica(fresh_server)
    writing = k.store.call("SET", "k", "v", timeout_s=60)
    await eventually(lambda: followed(k.store) == 1)
    async with asyncio.timeout(5):
        await k.aclose()

    with pytest.raises(NotPrimary, match="READONLY"):
        await writing


async def test_a_command_for_each_primary_is_not_followed_elsewhere(fresh_server: ServerProcess) -> None:
    async with connect(at(fresh_server)) as k:
        make_replica(fresh_server)
        with pytest.raises(NotPrimary, match="READONLY"):
            await k.store.call_each_primary("SET", "k", "v")

        assert followed(k.store) == 0
