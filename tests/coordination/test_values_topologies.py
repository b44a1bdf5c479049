"""Config, flags and kept values behind sentinels and on a cluster with shards."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest

from kizuna.app import Kizuna, connect
from kizuna.coordination.keys import CONFIG
from kizuna.errors import SettingsError
from kizuna.settings import CoordinationSettings, EventsSettings, RootsSettings, Settings, StoreSettings
from kizuna.store.keys import key_slot
from kizuna.testing import ClusterSetup, SentinelSetup, ServerProcess, eventually
from kizuna.testing.leaks import assert_keys_end_as_declared


def at(url: str, shards: int = 1, root: str = "t-values") -> Settings:
    return Settings(
        store=StoreSettings(url=url, timeout_s=10),
        events=EventsSettings(canary_every_s=0.2, canary_timeout_s=1),
        roots=RootsSettings(system=root, coordination=root),
        coordination=CoordinationSettings(shards=shards),
    )


@pytest.fixture
async def pair(cluster: ClusterSetup) -> AsyncIterator[tuple[Kizuna, Kizuna]]:
    """Two processes on a cluster, with six shards."""
    settings = at(cluster.url, shards=6, root=f"t-{secrets.token_hex(4)}")
    async with connect(settings) as one, connect(settings) as other:
        yield one, other
    for server in cluster.servers:
        assert_keys_end_as_declared(server, settings.roots.coordination)


async def test_on_a_cluster_values_are_spread_and_followed(pair: tuple[Kizuna, Kizuna]) -> None:
    one, other = pair
    names = [f"n:{number}" for number in range(60)]
    await asyncio.gather(*(other.config.set(name, name) for name in names[:30]))
    async with one.config.following():
        assert [one.config[name] for name in names[:30]] == names[:30]
        await asyncio.gather(*(other.config.set(name, name) for name in names[30:]))
        await eventually(lambda: [one.config.get(name) for name in names] == names)
        await other.config.unset("n:0")
        await eventually(lambda: one.config.get("n:0") is None)
    assert list(await one.config.read_all()) == sorted(names[1:])
    assert len({key_slot(one.keys.config(name)) for name in names}) == 6
    assert [entry.after for entry in await one.config.history("n:0")] == [None, "n:0"]


async def test_on_a_cluster_flags_are_turned_and_reverted(pair: tuple[Kizuna, Kizuna]) -> None:
    one, other = pair
    async with one.flags.following():
        for name in ("maintenance", "debug:enabled", "new-ui"):
            await other.flags.turn_on(name)
            await eventually(lambda: one.flags.is_on(name))  # noqa: B023 - awaited here
            await other.flags.revert(name)
            await eventually(lambda: not one.flags.is_on(name))  # noqa: B023 - awaited here


async def test_on_a_cluster_what_the_listeners_missed_is_seen(
    pair: tuple[Kizuna, Kizuna], cluster: ClusterSetup
) -> None:
    one, other = pair
    names = [f"n:{number}" for number in range(20)]
    async with one.config.following():
        for server in cluster.servers:
            server.call("CLIENT", "KILL", "TYPE", "pubsub")
        await asyncio.gather(*(other.config.set(name, 1) for name in names))
        await eventually(lambda: [one.config.get(name) for name in names] == [1] * 20)


async def test_on_a_cluster_kept_values_are_found_on_all_primaries(pair: tuple[Kizuna, Kizuna]) -> None:
    one, other = pair
    names = [f"user:{number}" for number in range(30)]
    await asyncio.gather(*(one.sessions.set(name, name) for name in names))

    assert await asyncio.gather(*(other.sessions.get(name) for name in names)) == names
    assert sorted([name async for name in other.sessions.names("user:*")]) == sorted(names)


async def test_a_value_in_the_wrong_shard_is_none(pair: tuple[Kizuna, Kizuna]) -> None:
    one, _ = pair
    roots = one.config._memory.roots
    wrong = next(root for root in roots.all if root != roots.of("n"))
    await one.store.call("SET", CONFIG.build(wrong, name="n"), 1)
    async with one.config.following():
        assert one.config.get("n") is None
    assert await one.config.read_all() == {}


async def test_a_cluster_without_shards_is_refused_with_a_sentence(cluster: ClusterSetup) -> None:
    async with connect(at(cluster.url)) as k:
        for part in ("config", "flags", "temp", "sessions", "keys"):
            with pytest.raises(SettingsError, match="shards = 1 does not work on a cluster"):
                getattr(k, part)


async def test_shards_work_on_a_single_server_too(server: ServerProcess, root: str) -> None:
    async with connect(at(server.url, shards=4, root=root)) as k, k.config.following():
        await k.config.set("a:b", 1)
        assert k.config["a:b"] == 1
        assert await k.store.call("GET", k.keys.config("a", "b")) == b"1"


async def test_behind_sentinels_values_are_followed_over_a_failover(fresh_sentinel: SentinelSetup) -> None:
    settings = at(fresh_sentinel.url)
    async with connect(settings) as one, connect(settings) as other:
        timeout = one.config.declare("claude:timeout", float, default=30.0)
        async with one.config.following(), one.flags.following():
            await other.config.set("claude:timeout", 45)
            await eventually(lambda: timeout.value == 45.0)
            await eventually(lambda: fresh_sentinel.replica.call("GET", "t-values:config:claude:timeout") == b"45")
            former = fresh_sentinel.kill_primary()
            await asyncio.to_thread(fresh_sentinel.wait_for_failover, former)
            assert timeout.value == 45.0
            await other.config.set("claude:timeout", 60)
            await other.flags.turn_on("maintenance")
            await eventually(lambda: timeout.value == 60.0 and one.flags.is_on("maintenance"), within_s=15)
