"""What becomes of tasks: retried, given up, cancelled, delayed, awaited."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.coordination.queues import Queue, holding
from kizuna.coordination.queues.results import REMEMBERED, Heard
from kizuna.coordination.queues.tasks import Delivery
from kizuna.errors import TaskCancelled, TaskFailed, TaskUnknown, WrongValue
from kizuna.settings import KeptSettings, QueuesSettings, Settings
from kizuna.testing import eventually


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, queues=QueuesSettings(retry_first_s=100, retry_longest_s=350))


async def popped(queue: Queue) -> Delivery:
    delivery = await queue.pop()
    assert delivery is not None
    return delivery


async def let_be_due(queue: Queue, id_: str) -> float:
    """Let the time of a delayed task come. Returns how many seconds it had still to wait."""
    due_ms = float(await queue._store.call("ZSCORE", queue._keys.delayed, id_))
    seconds, _ = await queue._store.call("TIME")
    await queue._store.call("ZADD", queue._keys.delayed, "XX", 1, id_)
    return due_ms / 1000 - int(seconds)


# -- failing -------------------------------------------------------------------------------------------------------


async def test_a_failed_task_is_tried_again_after_waits_that_double_up_to_a_cap(queue: Queue) -> None:
    task = await queue.push("x", attempts=5)
    for attempt, wait_s in enumerate((100, 200, 350, 350), 1):
        delivery = await popped(queue)
        assert delivery.attempt == attempt
        assert await delivery.fail(f"reason {attempt}") == "delayed"
        assert (await queue.status(task.id)).reason == f"reason {attempt}"
        assert await queue.pop() is None
        assert wait_s * 0.75 - 2 <= await let_be_due(queue, task.id) <= wait_s * 1.25 + 1

    assert await (await popped(queue)).fail("reason 5") == "dead"
    status = await queue.status(task.id)
    assert (status.state, status.failures, status.crashes, status.reason) == ("dead", 5, 0, "reason 5")
    with pytest.raises(TaskFailed, match="was given up: reason 5"):
        await task.result(timeout_s=5)


async def test_the_waits_of_tasks_that_failed_together_are_spread(queue: Queue) -> None:
    tasks = await queue.push_many(range(8))
    for _ in tasks:
        await (await popped(queue)).fail("no")

    assert len({round(await let_be_due(queue, task.id)) for task in tasks}) > 1
    await purge_all(queue)


async def test_a_consumer_may_say_when_to_try_again_or_never(queue: Queue) -> None:
    later, never = await queue.push_many(["later", "never"])

    assert await (await popped(queue)).fail("busy", retry_in_s=1000) == "delayed"
    assert await (await popped(queue)).fail("hopeless", retry=False) == "dead"
    assert 990 <= await let_be_due(queue, later.id) <= 1001
    assert (await queue.status(never.id)).state == "dead"
    await purge_all(queue)


async def test_what_is_released_does_not_count_as_an_attempt(queue: Queue) -> None:
    task, _ = await queue.push_many([1, 2])
    await (await popped(queue)).release()

    again = await popped(queue)
    assert (again.id, again.attempt) == (task.id, 1)
    await again.done()
    await queue.purge()


async def test_dead_letters_are_listed_and_requeued_with_fresh_counts(queue: Queue) -> None:
    one, two = await queue.push_many([1, 2])
    for _ in range(2):
        await (await popped(queue)).fail("bad", retry=False)
    assert {status.id: status.reason for status in await queue.dead()} == {one.id: "bad", two.id: "bad"}

    assert await queue.requeue(one.id) == 1
    assert await queue.requeue() == 1
    with pytest.raises(TaskUnknown):
        await queue.requeue(one.id)
    assert (await queue.depth()).dead == 0
    delivery = await popped(queue)
    assert (delivery.id, delivery.attempt, delivery.payload) == (one.id, 1, 1)
    await delivery.done("at last")
    assert await one.result(timeout_s=5) == "at last"
    await queue.purge()


async def test_dead_letters_are_dropped_one_or_all(queue: Queue) -> None:
    one, *others = await queue.push_many([1, 2, 3])
    for _ in range(3):
        await (await popped(queue)).fail("bad", retry=False)

    assert await queue.drop(one.id) == 1
    with pytest.raises(TaskUnknown):
        await queue.drop(one.id)
    assert {status.id for status in await queue.dead()} == {task.id for task in others}
    assert await queue.drop() == 2
    assert await queue.drop() == 0
    with pytest.raises(TaskUnknown):
        await queue.status(one.id)


async def test_who_settles_by_token_may_say_when_to_try_again(queue: Queue) -> None:
    task = await queue.push(1)
    delivery = await popped(queue)

    assert await queue.settle(task.id, delivery.token, error="busy", retry_in_s=3600) == "delayed"

    due_ms = float(await queue._store.call("ZSCORE", queue._keys.delayed, task.id))
    assert due_ms / 1000 - await queue._store.time_s() == pytest.approx(3600, abs=30)
    await queue.cancel(task.id)


async def test_requeuing_wakes_who_waits(queue: Queue) -> None:
    await queue.push(1)
    await (await popped(queue)).fail("bad", retry=False)
    popping = asyncio.create_task(queue.pop(wait_s=30))
    await eventually(lambda: queue._store.call("ZCARD", queue._keys.idle))
    await queue.requeue()

    delivery = await popping
    assert delivery is not None
    await delivery.done()


async def test_dead_letters_are_kept_for_a_while_only(settings: Settings) -> None:
    brief = msgspec.structs.replace(settings, kept=KeptSettings(dead_task_s=1))
    async with connect(brief) as k:
        queue = k.queue("images")
        old = await queue.push("old")
        await (await popped(queue)).fail("bad", retry=False)
        assert 0 < await k.store.call("PTTL", queue._keys.info(old.id)) <= 1000
        await k.store.call("ZADD", queue._keys.dead, "XX", 1, old.id)
        new = await queue.push("new")
        await (await popped(queue)).fail("bad", retry=False)

        assert await k.store.call("ZRANGE", queue._keys.dead, 0, -1) == [new.id.encode()]
        with pytest.raises(TaskUnknown):
            await queue.status(old.id)


# -- later ---------------------------------------------------------------------------------------------------------


async def test_a_delayed_task_waits_for_its_time(queue: Queue) -> None:
    task = await queue.push("x", delay_s=1000, priority="high")
    assert (await queue.status(task.id)).state == "delayed"
    assert await queue.pop() is None

    assert 990 < await let_be_due(queue, task.id) <= 1001
    delivery = await popped(queue)
    assert (delivery.id, delivery.priority, delivery.attempt) == (task.id, "high", 1)
    await delivery.done()


async def test_who_waits_knows_when_the_next_delayed_task_is_due(queue: Queue) -> None:
    async with queue.consumer() as consumer:
        taking = asyncio.create_task(consumer.take(wait_s=30))
        await eventually(lambda: queue._store.call("ZCARD", queue._keys.idle))
        await queue.push("soon", delay_s=0.05)
        [delivery] = await taking
        await consumer.finish(delivery)


# -- cancelling ----------------------------------------------------------------------------------------------------


async def test_a_waiting_task_that_is_cancelled_is_not_counted_and_skipped(queue: Queue) -> None:
    first, second, third = await queue.push_many([1, 2, 3])
    assert await queue.cancel(first.id)
    assert not await queue.cancel(first.id)
    assert (await queue.depth()).normal == 2
    with pytest.raises(TaskCancelled):
        await first.result(timeout_s=5)

    assert (await popped(queue)).id == second.id
    assert (await queue.status(first.id)).state == "cancelled"
    assert await queue.cancel(third.id)
    assert await queue.pop() is None
    assert (await queue.depth()).normal == 0


async def test_a_delayed_task_can_be_cancelled(queue: Queue) -> None:
    task = await queue.push("x", delay_s=1000)
    assert await queue.cancel(task.id)

    assert (await queue.depth()).delayed == 0
    with pytest.raises(TaskCancelled):
        await task.result(timeout_s=5)


async def test_what_has_ended_cannot_be_cancelled(queue: Queue) -> None:
    done, dead = await queue.push_many(["done", "dead"])
    await (await popped(queue)).done()
    await (await popped(queue)).fail("bad", retry=False)

    assert not await queue.cancel(done.id)
    assert not await queue.cancel(dead.id)
    with pytest.raises(TaskUnknown):
        await queue.cancel("never-heard-of")


async def test_a_task_of_another_group_is_none_of_ours(k: Kizuna, queue: Queue) -> None:
    await queue.push(1, id="theirs")
    other = k.queue("sounds")

    for attempt in (other.cancel("theirs"), other.status("theirs"), other.result("theirs", timeout_s=5)):
        with pytest.raises(TaskUnknown):
            await attempt
    assert (await queue.status("theirs")).state == "waiting"
    await queue.purge()


# -- waiting for results -------------------------------------------------------------------------------------------


async def test_who_waits_is_told_when_it_is_cancelled_or_given_up(queue: Queue) -> None:
    for end, error in (("cancel", TaskCancelled), ("dead", TaskFailed), ("purge", TaskCancelled)):
        task = await queue.push(end)
        waiting = asyncio.create_task(task.result(timeout_s=30))
        await eventually(lambda: len(queue._results._waiting) == 1)
        if end == "cancel":
            await queue.cancel(task.id)
        elif end == "dead":
            await (await popped(queue)).fail("bad", retry=False)
        else:
            await queue.purge()
        with pytest.raises(error):
            await waiting


async def test_many_wait_for_one_result(queue: Queue) -> None:
    task = await queue.push("x")
    waiting = [asyncio.create_task(queue.result(task.id, timeout_s=30)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await (await popped(queue)).done("for all")

    assert await asyncio.gather(*waiting[1:]) == ["for all"] * 4


async def test_a_result_that_was_there_before_is_found(k: Kizuna, queue: Queue) -> None:
    first = await queue.push("x")
    delivery = await popped(queue)
    await delivery.done("early")
    assert await first.result(timeout_s=5) == "early"

    # Now that we listen, tasks that were pushed since need no look, unless they were heard of.
    second, third = await queue.push_many(["y", "z"])
    await (await popped(queue)).done("second")
    await eventually(lambda: not queue._results._heard.excludes(second.id, queue._results.since))
    assert await second.result(timeout_s=5) == "second"
    await (await popped(queue)).done("third")
    assert await third.result(timeout_s=5) == "third"


async def test_who_waits_too_long_is_told_so_and_may_wait_again(queue: Queue) -> None:
    task = await queue.push("x")
    patient = asyncio.create_task(task.result(timeout_s=30))
    with pytest.raises(TimeoutError, match="has not ended yet"):
        await task.result(timeout_s=0.05)
    await (await popped(queue)).done(1)

    assert await task.result(timeout_s=5) == 1
    assert await patient == 1


async def test_a_result_is_kept_as_long_as_was_asked_for(k: Kizuna, queue: Queue) -> None:
    brief, usual = await queue.push("x", result_s=5), await queue.push("y")
    for _ in range(2):
        await (await popped(queue)).done(1)

    assert 0 < await k.store.call("PTTL", queue._keys.result(brief.id)) <= 5_000
    assert 3_500_000 < await k.store.call("PTTL", queue._keys.result(usual.id)) <= 3_600_000


async def test_a_task_that_nobody_knows_has_no_result(queue: Queue) -> None:
    with pytest.raises(TaskUnknown):
        await queue.result("never-heard-of", timeout_s=5)


async def test_a_thousand_wait_with_one_call_for_each_turn(k: Kizuna, queue: Queue) -> None:
    tasks = await queue.push_many(range(1000))
    async with queue.consumer() as consumer:
        for delivery in await consumer.take(most=1000):
            consumer.finish(delivery, delivery.payload)
    assert await tasks[0].result(timeout_s=5) == 0
    await k.store.call("CONFIG", "RESETSTAT")

    results = await asyncio.gather(*(task.result(timeout_s=30) for task in tasks))
    assert results == list(range(1000))
    stats = bytes(await k.store.call("INFO", "commandstats"))
    assert stats.count(b"cmdstat_evalsha:calls=1,") == 1
    assert b"cmdstat_mget" not in stats


def test_what_was_heard_is_remembered_for_as_long_as_it_is_relied_on() -> None:
    heard = Heard()
    since = heard.generation
    heard.take(["a"])
    assert not heard.excludes("a", since)
    assert heard.excludes("b", since)
    for number in range(5):
        heard.take([f"{number}-{other}" for other in range(REMEMBERED)])
        # Once it is forgotten, nothing is said about it any more.
        assert not heard.excludes("a", since)
    later = heard.generation
    assert heard.excludes("b", later)
    heard.missed()
    assert not heard.excludes("b", later)
    assert not heard.excludes("b", -1)


# -- progress ------------------------------------------------------------------------------------------------------


async def test_others_see_how_far_a_task_is(queue: Queue) -> None:
    task = await queue.push("x", name="resize", timeout_s=7, attempts=2)
    delivery = await popped(queue)
    assert (delivery.name, delivery.timeout_s) == ("resize", 7)
    await delivery.progress(0.25, "a quarter")

    status = await queue.status(task.id)
    assert (status.progress, status.note, status.name, status.attempts) == (0.25, "a quarter", "resize", 2)
    with pytest.raises(WrongValue):
        await delivery.progress(1.5)
    await delivery.release()
    assert (await queue.status(task.id)).progress is None
    await queue.purge()


async def purge_all(queue: Queue) -> None:
    await queue.requeue()
    for raw in await queue._store.call("ZRANGE", queue._keys.delayed, 0, -1):
        await queue.cancel(raw.decode())
    await queue.purge()


async def test_each_wait_is_twice_the_last_one_up_to_the_longest(
    settings: Settings, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "_jitter", lambda: 1.0)
    queues = QueuesSettings(retry_first_s=100, retry_longest_s=600)
    async with connect(msgspec.structs.replace(settings, queues=queues)) as k:
        queue, delayed = k.queue("images"), f"{root}:queues:delayed:images"
        await queue.push("x", attempts=9, id="x")
        waits = []
        for _ in range(5):
            delivery = await queue.pop(wait_s=5)
            assert delivery is not None
            await delivery.fail("no")
            waits.append(float(await k.store.call("ZSCORE", delayed, "x")) / 1000 - await k.store.time_s())
            await k.store.call("ZADD", delayed, 1, "x")

    assert [round(wait, -2) for wait in waits] == [100, 200, 400, 600, 600]
