"""The same queues on a single server, behind Sentinel, on a cluster with shards, and on Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest

from kizuna.app import Kizuna, connect
from kizuna.coordination.queues import Push
from kizuna.coordination.queues.consumers import Consumer
from kizuna.coordination.queues.tasks import Delivery
from kizuna.errors import LeaseLost, SettingsError, StoreError, TaskCancelled, TaskFailed
from kizuna.settings import CoordinationSettings, QueuesSettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import ClusterSetup, SentinelSetup, ServerProcess, eventually

SHARDS = 6


def on(url: str, root: str, shards: int = 1) -> Settings:
    return Settings(
        store=StoreSettings(url=url),
        roots=RootsSettings(system=root, coordination=root),
        coordination=CoordinationSettings(shards=shards),
        queues=QueuesSettings(retry_first_s=0.01),
    )


@pytest.fixture(params=["single", "sentinel", "cluster", "redis"])
async def k(request: pytest.FixtureRequest, root: str) -> AsyncIterator[Kizuna]:
    with ExitStack() as stack:
        if request.param == "redis":
            redis = ServerProcess(binary=request.getfixturevalue("redis_binary"))
            url = stack.enter_context(redis).url
        else:
            url = request.getfixturevalue({"single": "server"}.get(request.param, request.param)).url
        async with connect(on(url, root, SHARDS if request.param == "cluster" else 1)) as k:
            yield k
            if request.param != "single":
                await remove_all(k, root)


async def remove_all(k: Kizuna, root: str) -> None:
    found = await k.store.call_each_primary("KEYS", f"*{root}*")
    for key in [key for keys in found.values() for key in keys]:
        await k.store.call("DEL", key)


async def test_tasks_of_many_groups_go_their_way(k: Kizuna) -> None:
    groups = [f"group-{number}" for number in range(8)]
    tasks = {group: await k.queue(group).push_many(range(5)) for group in groups}
    assert await k.queues.groups() == groups

    for group in groups:
        async with k.queue(group).consumer() as consumer:
            deliveries = await consumer.take(most=10)
            assert [delivery.payload for delivery in deliveries] == list(range(5))
            for delivery in deliveries:
                consumer.finish(delivery, [group, delivery.payload])
    for group in groups:
        results = await asyncio.gather(*(task.result(timeout_s=10) for task in tasks[group]))
        assert results == [[group, number] for number in range(5)]


async def test_who_waits_is_woken_and_told(k: Kizuna) -> None:
    queue = k.queue("images")
    async with queue.consumer() as consumer:
        taking = asyncio.create_task(consumer.take(wait_s=30))
        await eventually(lambda: k.store.call("ZCARD", queue._keys.idle))
        task = await queue.push("x")
        waiting = asyncio.create_task(task.result(timeout_s=30))
        [delivery] = await taking
        await consumer.finish(delivery, "y")

        assert await waiting == "y"


async def test_failing_cancelling_delaying_and_requeuing_work_everywhere(k: Kizuna) -> None:
    queue = k.queue("images")
    failing, cancelled, _ = await queue.push_many(
        [Push(payload="f", attempts=2), Push(payload="c", priority="low"), Push(payload="d", delay_s=1000)]
    )
    async with queue.consumer() as consumer:
        for _ in range(2):
            [delivery] = await consumer.take(wait_s=30)
            await consumer.fail(delivery, "bad")
            await queue.pause() if delivery.attempt == 2 else await queue.cancel(cancelled.id)
        with pytest.raises(TaskFailed):
            await failing.result(timeout_s=10)
        with pytest.raises(TaskCancelled):
            await cancelled.result(timeout_s=10)
        depth = await queue.depth()
        assert (depth.waiting, depth.delayed, depth.running, depth.dead) == (0, 1, 0, 1)
        assert await queue.requeue() == 1
        await queue.resume()
        [delivery] = await consumer.take(wait_s=30)
        await delivery.progress(0.5)
        await consumer.finish(delivery, "at last")
    assert await failing.result(timeout_s=10) == "at last"
    assert sum(minute.pushed for minute in await queue.rates()) == 3


async def test_what_a_dead_process_held_in_any_group_goes_back(k: Kizuna) -> None:
    groups = [f"group-{number}" for number in range(8)]
    held = []
    for group in groups:
        await k.queue(group).push(group)
        held.append(await k.queue(group).pop(lease_s=1000))

    assert await k.queues.give_back(k.process) == len(groups)
    for group, delivery in zip(groups, held, strict=True):
        assert delivery is not None
        with pytest.raises(LeaseLost):
            await delivery.done()
        assert (await k.queue(group).depth()).normal == 1
        assert await k.queue(group).purge() == 1


async def test_a_cluster_needs_shards(cluster: ClusterSetup, root: str) -> None:
    async with connect(on(cluster.url, root)) as k:
        with pytest.raises(SettingsError, match=r"coordination\.shards = 1 does not work on a cluster"):
            k.queue("images")


async def test_tasks_survive_a_failover(fresh_sentinel: SentinelSetup, root: str) -> None:
    async with connect(on(fresh_sentinel.url, root)) as k:
        queue = k.queue("images")
        tasks = await queue.push_many(range(30))
        async with queue.consumer(lease_s=60) as consumer:
            deliveries = await consumer.take(most=10)
            replica, held = fresh_sentinel.replica, queue._keys.held(consumer.id)
            await eventually(lambda: replica.call("HLEN", held) == 10)
            former = fresh_sentinel.kill_primary()
            await asyncio.to_thread(fresh_sentinel.wait_for_failover, former)

            while deliveries:
                await asyncio.gather(*(done_at_last(consumer, delivery) for delivery in deliveries))
                deliveries = await consumer.take(most=10, wait_s=0)
        results = await asyncio.gather(*(task.result(timeout_s=30) for task in tasks))
        assert results == list(range(30))


async def done_at_last(consumer: Consumer, delivery: Delivery) -> None:
    """However often the server was not there to hear of it."""

    async def finished() -> bool:
        try:
            await consumer.finish(delivery, delivery.payload)
        except StoreError:
            return False
        return True

    await eventually(finished, within_s=20)
