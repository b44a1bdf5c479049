"""Stats, metrics and channels behind Sentinel, and spread over a cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kizuna.app import connect
from kizuna.coordination.channels import Message
from kizuna.coordination.stats.histograms import Histogram
from kizuna.errors import SettingsError, StoreError
from kizuna.settings import CoordinationSettings, EventsSettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import ClusterSetup, SentinelSetup, eventually
from kizuna.testing.leaks import assert_keys_end_as_declared

if TYPE_CHECKING:
    from kizuna.app import Kizuna

NAMES = [f"name-{number}" for number in range(12)]


def at(url: str, root: str, *, shards: int = 1) -> Settings:
    return Settings(
        store=StoreSettings(url=url, reconnect_longest_s=0.2),
        events=EventsSettings(canary_every_s=0.2, canary_timeout_s=1),
        roots=RootsSettings(system=root, coordination=root),
        coordination=CoordinationSettings(shards=shards),
    )


async def use_all_parts(k: Kizuna) -> None:
    for name in NAMES:
        await k.stats.count(name, "done", 2)
        await k.stats.observe(name, "took_ms", 5)
        await k.metrics.record(name, 0.5)
    async with k.stats.gathering() as gathered:
        for name in NAMES:
            gathered.count(name, "done")

    assert (await k.stats.categories(), await k.metrics.names()) == (sorted(NAMES), sorted(NAMES))
    for name in NAMES:
        total = await k.stats.totals(name)
        assert (total.counters, total.histograms) == ({"done": 3}, {"took_ms": Histogram.of([5])})
        assert sum(hour.figures.counters.get("done", 0) for hour in await k.stats.last_hours(name, 2)) == 3
        assert await k.metrics.current(name) == 0.5
        assert [sample.value for sample in await k.metrics.history(name)] == [0.5]


async def use_all_channels(k: Kizuna) -> None:
    async with k.channels.matching("*", type=int).subscribe() as messages:
        for number, name in enumerate(NAMES):
            log = k.channels.durable("events", name, type=int)
            async with log.reader("billing") as reader:
                await log.publish(number, id="one")
                await log.publish(number, id="one")
                entry = await reader.next(timeout_s=10)
                assert entry is not None
                assert entry.value == number
                assert await reader.look() == []
                await reader.done(entry)
        heard = {await messages.next(timeout_s=10) for _ in NAMES}

    assert heard == {Message(f"events:{name}", number) for number, name in enumerate(NAMES)}
    logs = {log.channel: (log.length, log.readers) for log in await k.channels.logs()}
    assert logs == {f"events:{name}": (1, {"billing": 0}) for name in NAMES}


async def test_everything_works_behind_sentinel(sentinel: SentinelSetup, root: str) -> None:
    async with connect(at(sentinel.url, root)) as k:
        await use_all_parts(k)
        await use_all_channels(k)
    assert_keys_end_as_declared(sentinel.primary, root)


async def test_everything_works_on_a_cluster_with_shards(cluster: ClusterSetup, root: str) -> None:
    async with connect(at(cluster.url, root, shards=6)) as k:
        await use_all_parts(k)
        await use_all_channels(k)
    holding = [server for server in cluster.servers if server.call("KEYS", f"{{{root}:*}}*")]
    assert len(holding) > 1
    for server in cluster.servers:
        assert_keys_end_as_declared(server, root)


async def test_others_publish_on_any_server_of_a_cluster_by_the_plain_name(cluster: ClusterSetup, root: str) -> None:
    async with (
        connect(at(cluster.url, root, shards=6)) as k,
        k.channels.channel("mirin", "requests", type=int).subscribe() as messages,
    ):
        for number, server in enumerate(cluster.servers):
            server.call("PUBLISH", f"{root}:channel:mirin:requests", number)
        heard = {await messages.next(timeout_s=10) for _ in cluster.servers}

        assert heard == {Message("mirin:requests", number) for number in range(3)}
        assert await k.channels.active() == {"mirin:requests": 1}


async def test_a_cluster_without_shards_is_refused_with_what_to_set(cluster: ClusterSetup, root: str) -> None:
    async with connect(at(cluster.url, root)) as k:
        with pytest.raises(SettingsError, match=r"coordination\.shards = 1 does not work on a cluster"):
            await k.stats.count("issues", "done")
        with pytest.raises(SettingsError):
            await k.metrics.record("cpu", 1)
        with pytest.raises(SettingsError):
            k.channels.durable("mirin", "requests")


async def test_a_reader_and_a_gathering_go_on_after_a_failover(fresh_sentinel: SentinelSetup, root: str) -> None:
    async with connect(at(fresh_sentinel.url, root)) as k:
        log = k.channels.durable("mirin", "requests", type=int)
        async with log.reader("billing") as reader, k.stats.gathering(every_s=0.1) as gathered:
            await log.publish(1)
            gathered.count("issues", "done")
            await gathered.flush()
            replica = fresh_sentinel.replica
            await eventually(lambda: replica.call("XLEN", f"{root}:log:mirin:requests") == 1)
            await eventually(lambda: replica.call("EXISTS", f"{root}:stats:issues:hourly"))

            former = await asyncio.to_thread(fresh_sentinel.kill_primary)
            gathered.count("issues", "done")
            await asyncio.to_thread(fresh_sentinel.wait_for_failover, former)
            await eventually(lambda: published(k, 2), within_s=20)

            entries = [await reader.next(timeout_s=20) for _ in range(2)]
            assert [entry.value for entry in entries if entry] == [1, 2]
            assert entries[-1] is not None
            assert await reader.done(entries[-1])
        assert (await k.stats.totals("issues")).counters == {"done": 2}


async def published(k: Kizuna, value: int) -> bool:
    """With one id, so that it does not matter how often it is tried."""
    try:
        await k.channels.durable("mirin", "requests", type=int).publish(value, id=f"id-{value}")
    except StoreError:
        return False
    return True
