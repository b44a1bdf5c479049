"""Who holds a task, and for how long. Leases are ended by writing their end, so no test waits for one."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from kizuna.app import Kizuna, connect
from kizuna.coordination.queues import Queue, consumers
from kizuna.coordination.queues.consumers import Consumer
from kizuna.coordination.queues.tasks import Delivery
from kizuna.errors import LeaseLost, TaskCancelled, TaskFailed
from kizuna.settings import Settings
from kizuna.testing import eventually


@dataclass
class Setup:
    k: Kizuna
    queue: Queue
    root: str

    async def lapse(self, consumer: str) -> None:
        """Let the lease of a consumer end, without waiting for it."""
        assert await self.k.store.call("ZADD", f"{self.root}:queues:consumers:images", "XX", "CH", 1, consumer) == 1


@pytest.fixture
def setup(k: Kizuna, root: str) -> Setup:
    return Setup(k, k.queue("images"), root)


async def popped(queue: Queue) -> Delivery:
    delivery = await queue.pop(lease_s=60)
    assert delivery is not None
    return delivery


async def test_the_task_of_a_consumer_whose_lease_has_ended_is_the_next_for_others(setup: Setup) -> None:
    first, *_ = await setup.queue.push_many(["first", "second", "third"])
    lost = await popped(setup.queue)
    await setup.lapse(lost.holder.id)
    # The one that notices takes what is next; the one after it takes what came back.
    assert (await popped(setup.queue)).payload == "second"

    delivery = await popped(setup.queue)
    assert delivery.id == first.id
    assert delivery.attempt == 2
    status = await setup.queue.status(first.id)
    assert (status.crashes, status.failures) == (1, 0)
    await setup.queue.purge()


async def test_a_late_acknowledgement_is_refused_and_nothing_is_written(setup: Setup) -> None:
    task = await setup.queue.push("x")
    lost = await popped(setup.queue)
    await setup.lapse(lost.holder.id)
    now_ours = await popped(setup.queue)

    for late in (lost.done("late"), lost.fail("late"), lost.release(), lost.progress(1.0), lost.renew()):
        with pytest.raises(LeaseLost):
            await late
    status = await setup.queue.status(task.id)
    assert (status.state, status.failures, status.progress) == ("running", 0, None)
    await now_ours.done("ours")
    assert await task.result(timeout_s=5) == "ours"
    with pytest.raises(LeaseLost, match="is no longer ours"):
        await lost.done("ours")
    assert await task.result(timeout_s=5) == "ours"


async def test_the_same_consumer_can_lose_a_task_and_get_it_again(setup: Setup) -> None:
    async with setup.queue.consumer() as consumer:
        await setup.queue.push("x")
        [first] = await consumer.take()
        await consumer.release(first)
        [second] = await consumer.take()

        with pytest.raises(LeaseLost):
            await consumer.finish(first, 1)
        await consumer.finish(second, 2)


async def test_a_task_that_takes_down_too_many_consumers_is_given_up(setup: Setup) -> None:
    task = await setup.queue.push("poison", attempts=100)
    for _ in range(setup.k.settings.queues.crashes):
        await setup.lapse((await popped(setup.queue)).holder.id)
    assert await setup.queue.pop() is None

    status = await setup.queue.status(task.id)
    assert (status.state, status.crashes, status.failures) == ("dead", 3, 0)
    with pytest.raises(TaskFailed) as failed:
        await task.result(timeout_s=5)
    assert failed.value.reason == "took down 3 consumers"


async def test_a_consumer_that_was_merely_late_keeps_what_nobody_has_taken_back(setup: Setup) -> None:
    task = await setup.queue.push("x")
    delivery = await popped(setup.queue)
    await setup.lapse(delivery.holder.id)

    await delivery.renew()
    await delivery.done("in time")
    assert await task.result(timeout_s=5) == "in time"


async def test_a_consumer_with_many_tasks_gives_them_back_in_batches(setup: Setup) -> None:
    await setup.queue.push_many(range(450))
    async with setup.queue.consumer() as crashed:
        assert len(await crashed.take(most=450)) == 450
        await setup.lapse(crashed.id)
        async with setup.queue.consumer() as other:
            assert sorted(delivery.payload for delivery in await other.take(most=450)) == list(range(450))
    await setup.queue.purge()


async def test_an_idle_consumer_takes_over_what_a_lapsed_one_held(setup: Setup) -> None:
    await setup.queue.push("x")
    lost = await popped(setup.queue)
    async with setup.queue.consumer() as consumer:
        taking = asyncio.create_task(consumer.take(wait_s=30))
        await eventually(lambda: idle(setup))
        await setup.lapse(lost.holder.id)

        [delivery] = await taking
        await consumer.finish(delivery)


async def test_when_a_process_is_dead_all_it_held_goes_back_at_once(setup: Setup, settings: Settings) -> None:
    other_queue = setup.k.queue("sounds")
    await setup.queue.push_many([1, 2])
    await other_queue.push(3)
    async with connect(settings) as dead:
        assert await dead.queue("images").pop(lease_s=1000) is not None
        assert await dead.queue("sounds").pop(lease_s=1000) is not None
        alive = await popped(setup.queue)

        assert await setup.k.queues.give_back(dead.process) == 2
        assert await setup.k.queues.give_back(dead.process) == 0
    depth = await setup.queue.depth()
    assert (depth.normal, depth.running) == (1, 1)
    await alive.done()
    again = await popped(setup.queue)
    assert again.attempt == 2
    await again.done()
    await other_queue.purge()


async def test_only_the_process_of_that_very_name_is_dead(setup: Setup) -> None:
    await setup.queue.push(1)
    delivery = await popped(setup.queue)
    process = setup.k.process

    assert await setup.k.queues.give_back(process[:-1]) == 0
    assert await setup.k.queues.give_back(f"{process}.c1") == 0
    await delivery.done()


# -- renewal -------------------------------------------------------------------------------------------------------


async def test_a_busy_event_loop_does_not_lose_its_tasks(setup: Setup) -> None:
    await setup.queue.push("slow")
    async with setup.queue.consumer(lease_s=3) as consumer:
        [delivery] = await consumer.take()
        before = await ends_at(setup, consumer)
        # Nobody renews from this loop: it stands still.
        threading.Event().wait(3.5)
        assert await ends_at(setup, consumer) > before
        async with setup.queue.consumer() as other:
            assert await other.take(wait_s=0) == []
        await consumer.finish(delivery)


async def test_a_long_lease_is_renewed_long_before_its_end(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "RENEW_EVERY_S", 0.05)
    await setup.queue.push("x")
    async with setup.queue.consumer(lease_s=600) as consumer:
        await consumer.take()
        key = f"{setup.root}:queues:consumers:images"
        ends_at = await setup.k.store.call("ZSCORE", key, consumer.id)

        async def renewed() -> bool:
            return bool(await setup.k.store.call("ZSCORE", key, consumer.id) != ends_at)

        await eventually(renewed)


async def test_who_lost_a_task_can_neither_fail_nor_release_what_it_has_got_again(setup: Setup) -> None:
    task = await setup.queue.push("x")
    async with setup.queue.consumer(lease_s=60) as consumer:
        (lost,) = await consumer.take()
        await setup.lapse(consumer.id)
        await (await popped(setup.queue)).release()
        (again,) = await consumer.take()
        for late in (lost.fail("late"), lost.release()):
            with pytest.raises(LeaseLost):
                await late
        assert (await setup.queue.status(task.id)).state == "running"
        await again.done()


async def test_who_waits_is_told_and_does_not_look_by_itself(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "LOOK_ANYWAY_S", (600.0, 600.0))
    monkeypatch.setattr(consumers, "RENEW_EVERY_S", 600.0)
    queue, lost = setup.queue, asyncio.Event()
    async with queue.consumer(lease_s=3600) as consumer:
        consumer.on_lost = lambda _: lost.set()

        async def waits() -> bool:
            return bool(await setup.k.store.call("ZCARD", f"{setup.root}:queues:idle:images"))

        async def taken_after(happening: Coroutine[Any, Any, object]) -> Delivery:
            taking = asyncio.create_task(consumer.take(wait_s=30))
            await eventually(waits)
            await happening
            (delivery,) = await asyncio.wait_for(taking, 20)
            return delivery

        await consumer.finish(await taken_after(queue.push("now")))
        await consumer.finish(await taken_after(queue.push("soon", delay_s=0.05)))
        await queue.pause()
        await queue.push("paused")
        resumed = await taken_after(queue.resume())
        await queue.cancel(resumed.id)
        await asyncio.wait_for(lost.wait(), 20)


async def test_a_process_is_a_member_while_it_takes_tasks(setup: Setup) -> None:
    async with setup.queue.consumer(), setup.queue.consumer():
        (process,) = await setup.k.processes.active()
        assert (process.id, process.kind) == (setup.k.process, "consumer")
    assert await setup.k.processes.active() == []

    # Of a pop, nobody knows whether it is the last.
    await setup.queue.pop()
    assert len(await setup.k.processes.active()) == 1
    await setup.k.queues.aclose()
    assert await setup.k.processes.active() == []


async def test_a_consumer_learns_of_a_cancelled_task(setup: Setup) -> None:
    lost: list[Delivery] = []
    task = await setup.queue.push("x")
    async with setup.queue.consumer() as consumer:
        consumer.on_lost = lost.append
        [delivery] = await consumer.take()
        assert await setup.queue.cancel(task.id)

        await eventually(lambda: lost == [delivery])
        assert consumer.held == 0
        with pytest.raises(LeaseLost):
            await consumer.finish(delivery, "too late")
    with pytest.raises(TaskCancelled):
        await task.result(timeout_s=5)


async def test_a_consumer_learns_at_its_next_renewal_what_it_was_not_told(setup: Setup) -> None:
    lost: list[Delivery] = []
    await setup.queue.push_many(["x", "y"])
    async with setup.queue.consumer(lease_s=0.6) as consumer:
        consumer.on_lost = lost.append
        first, second = await consumer.take(most=2)
        await setup.k.store.call("HDEL", f"{setup.root}:queues:held:images:{consumer.id}", first.id)

        await eventually(lambda: lost == [first])
        await consumer.finish(second)
    await setup.k.store.call("DEL", f"{setup.root}:task:info:{first.id}")


async def test_a_consumer_whose_lease_was_taken_away_loses_all_and_goes_on(setup: Setup) -> None:
    lost: list[Delivery] = []
    await setup.queue.push_many(["x", "y"])
    async with setup.queue.consumer() as consumer:
        consumer.on_lost = lost.append
        taken = await consumer.take(most=2)
        await setup.k.queues.give_back(setup.k.process)

        await eventually(lambda: len(lost) == 2)
        assert {delivery.id for delivery in lost} == {delivery.id for delivery in taken}
        again = await consumer.take(most=2)
        assert [delivery.attempt for delivery in again] == [2, 2]
        await asyncio.gather(*(consumer.finish(delivery) for delivery in again))


async def test_a_task_that_was_handed_out_without_our_knowing_goes_back(setup: Setup) -> None:
    """As after a connection that broke while the answer was on its way."""
    task = await setup.queue.push("x")
    async with setup.queue.consumer(lease_s=6) as consumer:
        handed = await consumer._taking.ask(1, waits=False)
        assert [delivery.id for delivery in handed.deliveries] == [task.id]

        async with setup.queue.consumer() as other:
            [delivery] = await other.take(wait_s=30)
            assert (delivery.id, delivery.attempt) == (task.id, 1)
            await other.finish(delivery)


async def test_renewing_costs_the_same_however_many_tasks_are_held(setup: Setup) -> None:
    await setup.queue.push_many(range(300))
    async with setup.queue.consumer() as consumer:
        await consumer.take(most=300)
        await setup.k.store.call("CONFIG", "RESETSTAT")
        await consumer.renew()

        stats = str(await setup.k.store.call("INFO", "commandstats"))
        assert not any(f"cmdstat_{many}" in stats for many in ("hgetall", "hkeys", "hset", "hmget"))
    await setup.queue.purge()


async def test_tasks_that_are_taken_back_are_in_the_log(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    await setup.queue.push("x")
    lost = await popped(setup.queue)
    await setup.lapse(lost.holder.id)
    with caplog.at_level(logging.WARNING, "kizuna.coordination"):
        await (await popped(setup.queue)).done()

    [record] = [record for record in caplog.records if record.message == "tasks taken back"]
    assert vars(record)["consumer"] == lost.holder.id


async def idle(setup: Setup) -> bool:
    return bool(await setup.k.store.call("ZCARD", f"{setup.root}:queues:idle:images"))


async def ends_at(setup: Setup, consumer: Consumer) -> float:
    remaining = (await setup.queue.consumers())[consumer.id]
    return time.monotonic() + remaining
