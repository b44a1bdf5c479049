"""The state of units behind sentinels and on a cluster."""

from __future__ import annotations

import asyncio

import pytest

from kizuna.app import connect
from kizuna.codecs import JSON, RAW
from kizuna.errors import ValueChanged
from kizuna.settings import EventsSettings, RootsSettings, Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.keys import key_slot
from kizuna.testing import ClusterSetup, SentinelSetup, ServerProcess, eventually
from kizuna.testing.leaks import assert_keys_end_as_declared
from kizuna.units.state import Changes, Keep

IDS = [f"n{number}" for number in range(30)]


def at(url: str, root: str) -> Settings:
    return Settings(
        store=StoreSettings(url=url, timeout_s=10),
        events=EventsSettings(canary_every_s=0.2, canary_timeout_s=1),
        roots=RootsSettings(system=root, coordination=root, units=root),
    )


def keep_of(store: Store) -> Keep:
    return Keep(store, "sensor", 60, RAW, 1000, store.settings.roots.units)


async def told(changes: Changes, how_many: int) -> dict[str, tuple[str, bytes | None]]:
    seen: dict[str, tuple[str, bytes | None]] = {}
    for _ in range(how_many):
        change = await changes.next(timeout_s=20)
        assert change is not None, f"only {len(seen)} were told"
        seen[change.id] = (change.kind, change.raw)
    return seen


# -- Cluster ------------------------------------------------------------------------------------------------


async def test_on_a_cluster_state_is_spread_and_read_from_all_primaries(cluster: ClusterSetup, root: str) -> None:
    async with connect(at(cluster.url, root)) as k:
        keep = keep_of(k.store)
        await asyncio.gather(*(keep.set(id_, id_.encode()) for id_ in IDS))

        assert len({key_slot(f"{root}/sensor/keep/{id_}") for id_ in IDS}) > 3
        assert await keep.get_many(IDS) == {id_: id_.encode() for id_ in IDS}
        assert sorted([id_ async for id_ in keep.ids()]) == sorted(IDS)
        counts = keep.with_codec(JSON)
        await asyncio.gather(*(counts.update(f"count{n % 3}", lambda old: (old or 0) + 1) for n in range(12)))
        assert await counts.get_many(["count0", "count1", "count2"]) == {f"count{n}": 4 for n in range(3)}
    for server in cluster.servers:
        assert_keys_end_as_declared(server, root)


async def test_on_a_cluster_changes_of_all_primaries_are_told(cluster: ClusterSetup, root: str) -> None:
    settings = at(cluster.url, root)
    async with connect(settings) as one, connect(settings) as other:
        theirs = keep_of(other.store)
        await asyncio.gather(*(theirs.set(id_, b"found") for id_ in IDS[:10]))
        async with keep_of(one.store).watch() as changes:
            assert await told(changes, 10) == dict.fromkeys(IDS[:10], ("set", b"found"))
            await asyncio.gather(*(theirs.set(id_, b"heard", ttl_s=5) for id_ in IDS))
            assert await told(changes, 30) == dict.fromkeys(IDS, ("set", b"heard"))
            await asyncio.gather(*(theirs.touch(id_, ttl_s=0.2) for id_ in IDS))
            assert await told(changes, 30) == dict.fromkeys(IDS, ("expired", None))


async def test_on_a_cluster_what_the_listeners_missed_is_told(cluster: ClusterSetup, root: str) -> None:
    settings = at(cluster.url, root)
    async with connect(settings) as one, connect(settings) as other, keep_of(one.store).watch() as changes:
        for server in cluster.servers:
            server.call("CLIENT", "KILL", "TYPE", "pubsub")
        await asyncio.gather(*(keep_of(other.store).set(id_, b"1") for id_ in IDS))

        assert await told(changes, 30) == dict.fromkeys(IDS, ("set", b"1"))


async def test_on_a_cluster_a_value_that_moves_has_not_changed(cluster: ClusterSetup, root: str) -> None:
    async with connect(at(cluster.url, root)) as k:
        keep = keep_of(k.store)
        async with keep.watch() as changes:
            await keep.set("temp", b"1")
            assert await told(changes, 1) == {"temp": ("set", b"1")}
            slot = cluster.slot_of(f"{root}/sensor/keep/temp")
            await asyncio.to_thread(cluster.move_slot, slot, elsewhere(cluster, slot))
            await keep.replace("temp", b"2", expected=b"1")

            assert await told(changes, 1) == {"temp": ("set", b"2")}


def elsewhere(cluster: ClusterSetup, slot: int) -> ServerProcess:
    owner = cluster.owner_of(slot)
    return next(server for server in cluster.servers if server is not owner)


# -- Sentinel -----------------------------------------------------------------------------------------------


async def test_behind_sentinels_state_is_watched_over_a_failover(fresh_sentinel: SentinelSetup, root: str) -> None:
    settings = at(fresh_sentinel.url, root)
    async with connect(settings) as one, connect(settings) as other:
        theirs = keep_of(other.store)
        async with keep_of(one.store).watch() as changes:
            await theirs.set("mode", b"1")
            assert await told(changes, 1) == {"mode": ("set", b"1")}
            await eventually(lambda: fresh_sentinel.replica.call("GET", f"{root}/sensor/keep/mode") == b"1")
            former = await asyncio.to_thread(fresh_sentinel.kill_primary)
            await asyncio.to_thread(fresh_sentinel.wait_for_failover, former)
            await theirs.replace("mode", b"2", expected=b"1")

            assert await told(changes, 1) == {"mode": ("set", b"2")}
            with pytest.raises(ValueChanged):
                await theirs.replace("mode", b"3", expected=b"1")
