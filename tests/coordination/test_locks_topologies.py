"""Locks where the primary becomes another one, and where the keys are spread over many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial

import pytest

from kizuna.app import Kizuna, connect
from kizuna.errors import LockHeld, LockLost, SettingsError, StoreError
from kizuna.settings import CoordinationSettings, ProcessesSettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import ClusterSetup, SentinelSetup, eventually
from kizuna.testing.leaks import assert_keys_end_as_declared

SHARDS = 6


def on(url: str, root: str, *, process: str = "ours", shards: int = 1) -> Settings:
    return Settings(
        store=StoreSettings(url=url, timeout_s=5, connect_timeout_s=1, reconnect_longest_s=0.2),
        roots=RootsSettings(system=root, coordination=root),
        processes=ProcessesSettings(id=process),
        coordination=CoordinationSettings(shards=shards),
    )


# -- Sentinel -----------------------------------------------------------------------------------------------


async def test_locks_work_at_the_primary_that_the_sentinels_name(sentinel: SentinelSetup, root: str) -> None:
    async with connect(on(sentinel.url, root)) as k, connect(on(sentinel.url, root, process="theirs")) as other:
        held = await k.locks.acquire("nightly")
        waiting = asyncio.create_task(other.locks.acquire("nightly"))
        await eventually(lambda: k.locks.line("nightly"))
        await held.release()
        await (await waiting).release()
        assert_keys_end_as_declared(sentinel.primary, root)


async def test_after_a_failover_a_lock_is_kept_or_its_holder_told_and_numbers_still_rise(
    fresh_sentinel: SentinelSetup, root: str
) -> None:
    url = fresh_sentinel.url
    async with connect(on(url, root)) as k, connect(on(url, root, process="theirs")) as other:
        held = await k.locks.acquire("nightly", lease_s=2)
        waiting = asyncio.create_task(persistently(other, "nightly"))
        await eventually(lambda: k.locks.line("nightly"))
        former = await asyncio.to_thread(fresh_sentinel.kill_primary)
        await asyncio.to_thread(fresh_sentinel.wait_for_failover, former)
        try:
            await eventually(lambda: is_verified(held.verify), within_s=10)
            await held.release()
        except LockLost:
            assert held.lost.is_set()

        theirs = await waiting
        assert theirs > held.fence


async def persistently(k: Kizuna, name: str) -> int:
    """Until the server is there again."""
    while True:
        try:
            async with k.locks.hold(name, wait_s=None) as held:
                return held.fence
        except StoreError:
            await asyncio.sleep(0.05)


async def is_verified(verify: object) -> bool:
    try:
        await verify()  # type: ignore[operator]
    except StoreError:
        return False
    return True


# -- Cluster ------------------------------------------------------------------------------------------------


@pytest.fixture
async def two(cluster: ClusterSetup, root: str) -> AsyncIterator[tuple[Kizuna, Kizuna]]:
    ours, theirs = (on(cluster.url, root, process=process, shards=SHARDS) for process in ("ours", "theirs"))
    async with connect(ours) as k, connect(theirs) as other:
        yield k, other
    for server in cluster.servers:
        assert_keys_end_as_declared(server, root)


def locks_on(cluster: ClusterSetup, root: str) -> Iterator[list[bytes]]:
    for server in cluster.servers:
        yield server.call("KEYS", f"{{{root}:*}}:lock:*")


async def test_the_locks_of_a_cluster_are_spread_and_listed_together(
    two: tuple[Kizuna, Kizuna], cluster: ClusterSetup, root: str
) -> None:
    k, other = two
    names = [f"issue:{number}" for number in range(30)]
    async with AsyncExitStack() as stack:
        for name in names:
            held = await stack.enter_async_context(k.locks.hold(name, lease_s=6))
        assert all(locks_on(cluster, root))
        assert [holder.lock for holder in await other.locks.ls()] == sorted(names)
        with pytest.raises(LockHeld):
            await other.locks.acquire(names[0], wait_s=0)
        ended_at = held.ends_at
        await eventually(lambda: held.ends_at > ended_at)
    assert await other.locks.ls() == []


async def test_on_a_cluster_too_the_release_wakes_the_next_in_line(
    two: tuple[Kizuna, Kizuna], cluster: ClusterSetup
) -> None:
    k, other = two
    order: list[int] = []

    async def work(number: int, name: str) -> None:
        async with (k, other)[number % 2].locks.hold(name, wait_s=30, lease_s=60):
            order.append(number)

    async def in_line(name: str, number: int) -> bool:
        return len(await k.locks.line(name)) == number

    for name in ("issue:1", "issue:2", "issue:3"):
        order.clear()
        held = await k.locks.acquire(name, lease_s=60)
        waiting = []
        for number in range(6):
            waiting.append(asyncio.create_task(work(number, name)))
            await eventually(partial(in_line, name, number + 1), every_s=0.005)
        await held.release()
        await asyncio.gather(*waiting)
        # On a machine that stands still for longer than a turn lasts, one may be overtaken by the next.
        assert sorted(order) == list(range(6))
        assert max(abs(place - number) for place, number in enumerate(order)) <= 2


async def test_on_a_cluster_too_a_dead_process_gives_back_what_it_held(two: tuple[Kizuna, Kizuna]) -> None:
    k, other = two
    for number in range(20):
        await k.locks.acquire(f"issue:{number}", lease_s=60)
    async with other.locks.hold("theirs"):
        await other.locks.give_back("ours")
        assert [holder.lock for holder in await other.locks.ls()] == ["theirs"]


async def test_numbers_rise_for_each_lock_of_a_cluster(two: tuple[Kizuna, Kizuna]) -> None:
    for name in ("a", "b", "c", "d"):
        fences = []
        for number in range(6):
            async with two[number % 2].locks.hold(name) as held:
                fences.append(held.fence)
                await held.guard(name)
        assert fences == sorted(set(fences))


async def test_a_cluster_without_shards_is_refused(cluster: ClusterSetup, root: str) -> None:
    async with connect(on(cluster.url, root)) as k:
        with pytest.raises(SettingsError, match="shards"):
            await k.locks.acquire("nightly")
