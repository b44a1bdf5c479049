"""Looking after queues: figures, pausing, purging, forgetting."""

from __future__ import annotations

import asyncio

import pytest

from kizuna.app import Kizuna
from kizuna.coordination.queues import Push, Queue
from kizuna.coordination.queues.tasks import Depth
from kizuna.errors import WrongValue
from kizuna.testing import eventually


async def test_the_depth_says_where_all_tasks_are(queue: Queue) -> None:
    await queue.push_many([Push(payload=1, priority=p) for p in ("high", "normal", "normal", "low", "low", "low")])
    await queue.push(1, delay_s=1000)
    async with queue.consumer() as consumer:
        one, _, _ = await consumer.take(most=3)
        await consumer.fail(one, "bad", retry=False)

        expected = Depth(high=0, normal=0, low=3, delayed=1, running=2, dead=1)
        assert await queue.depth() == expected
        assert expected.waiting == 3
    await queue.purge()


async def test_the_oldest_task_that_waits_has_an_age(k: Kizuna, queue: Queue) -> None:
    assert await queue.oldest_age_s() is None
    old, older, newest = await queue.push_many(["old", "older", "newest"])
    for task, at in ((old, 2_000), (older, 1_000)):
        await k.store.call("HSET", queue._keys.info(task.id), "at", at)

    # The list is in order of pushing, so the first one that waits counts.
    seconds, _ = await k.store.call("TIME")
    assert await queue.oldest_age_s() == pytest.approx(int(seconds) - 1, abs=10)
    await queue.cancel(old.id)
    await queue.cancel(older.id)
    assert await queue.oldest_age_s() == pytest.approx(0, abs=30)
    assert (await queue.status(newest.id)).state == "waiting"
    await queue.purge()


async def test_rates_count_what_happened_in_each_minute(k: Kizuna, queue: Queue) -> None:
    await queue.push_many(range(5))
    async with queue.consumer() as consumer:
        deliveries = await consumer.take(most=4)
        await asyncio.gather(*(consumer.finish(delivery) for delivery in deliveries[:2]))
        await consumer.fail(deliveries[2], "bad")
        await consumer.fail(deliveries[3], "bad", retry=False)
        assert await consumer.take(wait_s=0)
        await k.queues.give_back(k.process)

    minutes = await queue.rates()
    assert len(minutes) == 60
    assert minutes[-1].at - minutes[0].at == 59 * 60
    # The minute may have changed in between.
    sums = {kind: sum(getattr(m, kind) for m in minutes) for kind in ("pushed", "done", "failed", "crashed", "dead")}
    assert sums == {"pushed": 5, "done": 2, "failed": 2, "crashed": 1, "dead": 1}
    await queue.purge()


async def test_what_is_counted_ends_by_itself(k: Kizuna, queue: Queue, root: str) -> None:
    await queue.push(1)
    delivery = await queue.pop()
    assert delivery is not None
    await delivery.done()

    for key in await k.store.call("KEYS", f"{root}:queues:rates:*"):
        assert 0 < await k.store.call("PTTL", key) <= 3_660_000


async def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(queue: Queue) -> None:
    await queue.push(1)
    await queue.pause()
    assert await queue.is_paused()
    assert await queue.pop() is None
    popping = asyncio.create_task(queue.pop(wait_s=30))
    await eventually(lambda: queue._store.call("ZCARD", queue._keys.idle))
    await queue.push(2)

    assert await queue.resume()
    delivery = await popping
    assert delivery is not None
    assert delivery.payload == 1
    await delivery.done()
    assert not await queue.resume()
    await queue.purge()


async def test_what_runs_when_a_queue_is_paused_may_end(queue: Queue) -> None:
    task = await queue.push(1)
    delivery = await queue.pop()
    assert delivery is not None
    await queue.pause()
    await delivery.done("ok")
    await queue.resume()

    assert await task.result(timeout_s=5) == "ok"


async def test_one_priority_or_all_are_purged(queue: Queue) -> None:
    tasks = await queue.push_many([Push(payload=1, priority=p) for p in ("high", "low", "low")])
    await queue.cancel(tasks[1].id)

    assert await queue.purge("low") == 1
    assert (await queue.status(tasks[2].id)).state == "cancelled"
    assert await queue.purge() == 1
    assert (await queue.depth()).waiting == 0
    with pytest.raises(WrongValue):
        await queue.purge("urgent")  # type: ignore[arg-type]


async def test_a_group_without_tasks_can_be_forgotten(k: Kizuna, queue: Queue, root: str) -> None:
    await queue.push(1, result_s=0)
    assert not await queue.forget()
    delivery = await queue.pop()
    assert delivery is not None
    assert not await queue.forget()
    await delivery.done()

    assert await queue.forget()
    assert await k.store.call("KEYS", f"{root}:[qt]*") == []
    assert await k.queues.groups() == []
    await queue.push(2)
    assert await k.queues.groups() == ["images"]
    await queue.purge()


async def test_it_is_known_who_takes_tasks(queue: Queue) -> None:
    async with queue.consumer(lease_s=50) as consumer:
        await consumer.take(wait_s=0)

        [(name, remaining_s)] = (await queue.consumers()).items()
        assert name == consumer.id
        assert 0 < remaining_s <= 50
    assert await queue.consumers() == {}


async def test_consumers_are_named_after_their_process(k: Kizuna, queue: Queue) -> None:
    assert queue.consumer().id.rpartition(".")[0] == k.process
