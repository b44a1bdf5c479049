"""Through Sentinel to whoever is the primary now."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from kizuna.app import connect
from kizuna.errors import OutcomeUnknown, SignInRefused, StoreError, Unreachable
from kizuna.settings import Settings, StoreSettings
from kizuna.testing import SentinelSetup, ServerProcess, eventually
from kizuna.testing.servers import free_port


def at(url: str, **options: Any) -> Settings:
    return Settings(store=StoreSettings(url=url, **options))


async def test_the_primary_is_found(sentinel: SentinelSetup) -> None:
    async with connect(at(sentinel.url)) as k:
        assert await k.store.call("SET", "sentinel-test", "v", "PX", 5000) == b"OK"
        assert list(await k.store.call_each_primary("PING")) == [sentinel.primary.address]
        assert (await k.store.call("ROLE"))[0] == b"master"


async def test_sentinels_that_are_away_are_skipped(sentinel: SentinelSetup) -> None:
    nobody, somebody = f"127.0.0.1:{free_port()}", sentinel.sentinels[0].address
    async with connect(at(f"redis+sentinel://{nobody},{somebody},{nobody}/{sentinel.name}")) as k:
        assert await k.store.call("PING") == b"PONG"


async def test_a_name_that_no_sentinel_knows(sentinel: SentinelSetup) -> None:
    addresses = sentinel.url.removeprefix("redis+sentinel://").removesuffix(f"/{sentinel.name}")
    with pytest.raises(Unreachable) as unreachable:
        async with connect(at(f"redis+sentinel://{addresses}/other", timeout_s=2)):
            pass

    text = str(unreachable.value)
    assert text.startswith("no sentinel names a primary [127.0.0.1:")
    assert text.count("knows no primary called 'other'") == 3
    assert text.endswith(
        "at redis+sentinel://…/other (not sent); "
        "check the name and addresses in store.url (SENTINEL MASTERS lists the names)"
    )


async def test_an_address_of_yesterday_that_leads_to_a_replica_is_not_taken(sentinel: SentinelSetup) -> None:
    """A sentinel that is cut off from the others goes on naming a server that has become a replica."""
    with ServerProcess(sentinel=True) as mistaken:
        replica = sentinel.replica
        mistaken.call("SENTINEL", "MONITOR", "main", replica.host, replica.port, 3)
        with pytest.raises(Unreachable) as unreachable:
            async with connect(at(f"redis+sentinel://{mistaken.address}/main", timeout_s=2)):
                pass
        assert str(unreachable.value) == (
            f"this server is a replica now at {replica.address} (not sent); the next primary is being looked for"
        ) or sentinel.primary.address in str(unreachable.value)

        both = f"redis+sentinel://{mistaken.address},{sentinel.sentinels[0].address}/main"
        async with connect(at(both)) as k:
            assert list(await k.store.call_each_primary("PING")) == [sentinel.primary.address]


async def test_calls_recover_after_a_failover_and_follow_the_new_primary(fresh_sentinel: SentinelSetup) -> None:
    async with connect(at(fresh_sentinel.url, timeout_s=2.0)) as k:
        outcomes: list[str] = []
        running = True

        async def write_on() -> None:
            number = 0
            while running:
                number += 1
                try:
                    await k.store.call("SET", f"key-{number}", number)
                    outcomes.append("ok")
                except StoreError as error:
                    outcomes.append(error.outcome)

        writing = asyncio.create_task(write_on())
        await eventually(lambda: len(outcomes) > 100)
        former = await asyncio.to_thread(fresh_sentinel.kill_primary)
        primary = await asyncio.to_thread(fresh_sentinel.wait_for_failover, former)
        promoted, acknowledged = time.monotonic(), outcomes.count("ok")
        await eventually(lambda: outcomes.count("ok") > acknowledged + 100)
        assert time.monotonic() - promoted < 5
        assert list(await k.store.call_each_primary("PING")) == [primary.address]
        assert "refused" not in outcomes

        # The former primary comes back as a replica, and nobody goes there.
        await asyncio.to_thread(fresh_sentinel.heal)
        assert list(await k.store.call_each_primary("PING")) == [primary.address]
        assert await k.store.call("SET", "after", "x") == b"OK"
        running = False
        await writing


async def test_a_primary_that_becomes_a_replica_under_us_is_left(fresh_sentinel: SentinelSetup) -> None:
    """The failover that an administrator asks for: both live on, and the roles are changed."""
    async with connect(at(fresh_sentinel.url, timeout_s=8.0, reconnect_longest_s=0.2)) as k:
        former = fresh_sentinel.primary
        await asyncio.to_thread(fresh_sentinel.change_roles)

        async def written_at_the_new_one() -> bool:
            try:
                await k.store.call("SET", "a", "b")
                return list(await k.store.call_each_primary("PING")) != [former.address]
            except OutcomeUnknown:
                return False  # it was on its way when the connection was cut

        assert await eventually(written_at_the_new_one)


async def test_sentinels_with_a_password_are_asked_with_theirs(sentinel: SentinelSetup) -> None:
    primary = sentinel.primary
    users = {"default": "off", "watcher": "on >pw +@all"}
    with ServerProcess(sentinel=True, users=users) as guarded:
        guarded.call("SENTINEL", "MONITOR", "main", primary.host, primary.port, 1)
        url = f"redis+sentinel://{guarded.address}/main"
        async with connect(at(url, sentinel_username="watcher", sentinel_password="pw")) as k:
            assert await k.store.call("PING") == b"PONG"
        began = time.monotonic()
        with pytest.raises(SignInRefused) as refused:
            async with connect(at(url, timeout_s=60, sentinel_username="watcher", sentinel_password="wrong")):
                pass
        assert guarded.address in str(refused.value)
        assert time.monotonic() - began < 2
