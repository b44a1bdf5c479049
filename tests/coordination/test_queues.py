"""Pushing, taking, finishing: a task's way through a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kizuna.app import Kizuna, connect
from kizuna.codecs import RAW, json_of
from kizuna.coordination.queues import Push, Queue
from kizuna.coordination.queues.consumers import Consumer
from kizuna.errors import IllegalName, LeaseLost, TaskFailed, TaskUnknown, Undecodable, WrongValue
from kizuna.settings import Settings
from kizuna.store.events.feeds import LookAgain
from kizuna.testing import eventually


@pytest.fixture
async def consumer(queue: Queue) -> AsyncIterator[Consumer]:
    async with queue.consumer() as consumer:
        yield consumer


# -- the way of a task ---------------------------------------------------------------------------------------------


async def test_a_task_is_pushed_taken_and_done(queue: Queue, consumer: Consumer) -> None:
    task = await queue.push({"n": 1}, priority="high")
    assert (await queue.status(task.id)).state == "waiting"

    [delivery] = await consumer.take(most=50)
    assert (delivery.id, delivery.payload, delivery.attempt) == (task.id, {"n": 1}, 1)
    running = await queue.status(task.id)
    assert (running.state, running.consumer) == ("running", consumer.id)
    assert running.pushed_at is not None
    assert running.started_at is not None
    assert 0 <= running.started_at - running.pushed_at < 60

    await consumer.finish(delivery, {"sum": 2})
    assert await task.result(timeout_s=5) == {"sum": 2}
    assert (await queue.status(task.id)).state == "done"
    assert (await queue.depth()).running == 0


@pytest.mark.parametrize("result", [None, 0, "", [], {"a": [1, None]}, "ありがとう"])
async def test_what_was_returned_is_what_is_awaited(queue: Queue, consumer: Consumer, result: object) -> None:
    task = await queue.push("anything")
    [delivery] = await consumer.take()
    await delivery.done(result)

    assert await task.result(timeout_s=5) == result


async def test_tasks_of_one_priority_are_handed_out_in_the_order_in_which_they_were_pushed(
    queue: Queue, consumer: Consumer
) -> None:
    await queue.push_many(range(10))
    await queue.push(10)

    assert [delivery.payload for delivery in await consumer.take(most=50)] == list(range(11))


async def test_a_payload_is_bytes_where_the_codec_says_so(k: Kizuna) -> None:
    queue = k.queue("files", codec=RAW)
    task = await queue.push(b"\x00\xff{")
    delivery = await queue.pop()
    assert delivery is not None
    assert delivery.payload == b"\x00\xff{"
    await delivery.done(b"")

    assert await task.result(timeout_s=5) == b""


async def test_a_payload_of_the_wrong_type_fails_where_it_is_read_and_not_where_it_is_taken(k: Kizuna) -> None:
    await k.queue("typed").push("not a number")
    delivery = await k.queue("typed", codec=json_of(int)).pop()

    assert delivery is not None
    with pytest.raises(Undecodable):
        _ = delivery.payload
    await delivery.release()
    await k.queue("typed").purge()


async def test_groups_keep_apart(k: Kizuna) -> None:
    await k.queue("a").push(1)

    assert await k.queue("b").pop() is None
    assert await k.queue().pop() is None
    assert await k.queues.groups() == ["a"]
    delivery = await k.queue("a").pop()
    assert delivery is not None
    await delivery.done()


async def test_the_default_group_has_the_original_key_names(k: Kizuna, root: str) -> None:
    await k.queue().push(1, id="task-123", priority="high")
    await k.queue("images").push(1, id="task-124", priority="low")

    assert await k.store.call("LRANGE", f"{root}:queue:high", 0, -1) == [b"task-123"]
    assert await k.store.call("HGET", f"{root}:task:info:task-123", "payload") == b"1"
    assert await k.store.call("LRANGE", f"{root}:queue:images:low", 0, -1) == [b"task-124"]
    delivery = await k.queue().pop()
    assert delivery is not None
    await delivery.done({"ok": True})
    assert await k.store.call("GET", f"{root}:task:result:task-123") == b'{"ok":true}'
    assert await k.store.call("EXISTS", f"{root}:task:info:task-123") == 0


async def test_nothing_but_results_and_figures_is_left_of_what_is_done(k: Kizuna, root: str) -> None:
    queue = k.queue()
    await queue.push_many(range(20))
    async with queue.consumer() as consumer:
        for delivery in await consumer.take(most=50):
            consumer.finish(delivery)
    assert await queue.pop() is None

    left = [key.decode().removeprefix(f"{root}:") for key in await k.store.call("KEYS", f"{root}:[qt]*")]
    assert {key.rpartition(":")[0] for key in left} == {
        "task:result",
        "queues:counts",
        "queues",
        "queues:rates:default",
    }
    assert "queues:groups" in left


# -- pushing twice -------------------------------------------------------------------------------------------------


async def test_a_second_push_of_an_id_changes_nothing(queue: Queue, consumer: Consumer) -> None:
    first = await queue.push("first", id="t1")
    second = await queue.push("second", id="t1", priority="high", delay_s=100)
    assert (first.known, second.known) == (False, True)

    [delivery] = await consumer.take(most=50)
    assert delivery.payload == "first"
    assert (await queue.push("third", id="t1")).known
    await consumer.finish(delivery, "done")
    assert (await queue.push("fourth", id="t1")).known
    assert await consumer.take(wait_s=0) == []
    assert await second.result(timeout_s=5) == "done"


async def test_of_one_id_that_is_pushed_many_times_at_once_one_counts(queue: Queue) -> None:
    together = await asyncio.gather(*(queue.push(n, id="same") for n in range(20)))
    in_one_call = await queue.push_many([Push(payload=n, id="other") for n in range(20)])

    assert sum(not task.known for task in together) == 1
    assert [task.known for task in in_one_call] == [False] + [True] * 19
    assert (await queue.depth()).normal == 2
    await queue.purge()


async def test_an_id_can_be_used_again_once_its_result_is_no_longer_kept(queue: Queue) -> None:
    await queue.push(1, id="t", result_s=0)
    delivery = await queue.pop()
    assert delivery is not None
    await delivery.done("lost")

    with pytest.raises(TaskUnknown):
        await queue.status("t")
    assert not (await queue.push(2, id="t")).known
    await queue.purge()


async def test_many_are_pushed_in_calls_of_bounded_size(queue: Queue) -> None:
    pushes = [Push(payload=n, priority="high" if n % 3 else "low", name=f"n{n % 2}") for n in range(1_100)]
    tasks = await queue.push_many(pushes)

    assert len({task.id for task in tasks}) == 1_100
    depth = await queue.depth()
    assert (depth.high, depth.normal, depth.low) == (733, 0, 367)
    assert await queue.purge() == 1_100


async def test_ids_that_were_made_for_us_are_returned_in_the_order_of_the_payloads(queue: Queue) -> None:
    tasks = await queue.push_many([Push(payload=n, priority=("high", "low")[n % 2]) for n in range(10)])
    async with queue.consumer() as consumer:
        payloads = {delivery.id: delivery.payload for delivery in await consumer.take(most=50)}

    assert [payloads[task.id] for task in tasks] == list(range(10))
    await queue.purge()


async def test_large_payloads_are_handed_out_a_few_at_a_time(k: Kizuna) -> None:
    queue = k.queue("large", codec=RAW)
    await queue.push_many([b"x" * 1_500_000] * 4)
    async with queue.consumer() as consumer:
        first = await consumer.take(most=50)
        assert 1 < len(first) < 4
        assert len(first) + len(await consumer.take(most=50)) == 4
    await queue.purge()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"priority": "urgent"}, "priority cannot be 'urgent'; expected high, normal or low"),
        ({"delay_s": -1}, "delay_s cannot be -1; expected seconds from 0 to ten years"),
        ({"delay_s": float("nan")}, "delay_s cannot be nan; expected seconds from 0 to ten years"),
        ({"attempts": 0}, "attempts cannot be 0; expected 1 or more"),
        ({"timeout_s": 0}, "timeout_s cannot be 0; expected seconds above 0"),
        ({"result_s": -1}, "result_s cannot be -1; expected seconds, or 0 to keep no result"),
    ],
)
async def test_what_cannot_be_meant_is_refused(queue: Queue, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(WrongValue) as refused:
        await queue.push(1, **options)  # type: ignore[arg-type]

    assert str(refused.value) == sentence
    assert (await queue.depth()).waiting == 0


async def test_ids_and_groups_that_could_leave_their_place_are_refused(k: Kizuna, queue: Queue) -> None:
    for illegal in ("", "a:b", "a b", "{a}", "a*", "x" * 300):
        with pytest.raises(IllegalName):
            await queue.push(1, id=illegal)
        with pytest.raises(IllegalName):
            await queue.status(illegal)
        with pytest.raises(IllegalName):
            k.queue(illegal)


# -- priorities ----------------------------------------------------------------------------------------------------


async def test_high_comes_before_normal_before_low(queue: Queue) -> None:
    await queue.push_many([Push(payload=p, priority=p) for p in ("low", "normal", "high") for _ in range(3)])
    async with queue.consumer(normal_share=0, low_share=0) as consumer:
        taken = [delivery.payload for delivery in await consumer.take(most=50)]

    assert taken == ["high"] * 3 + ["normal"] * 3 + ["low"] * 3
    await queue.purge()


@pytest.mark.parametrize("most", [1, 7, 100])
async def test_of_all_tasks_handed_out_a_share_is_kept_for_the_lower_ones(queue: Queue, most: int) -> None:
    await queue.push_many([Push(payload=p, priority=p) for p in ("low", "normal", "high") for _ in range(200)])
    taken: list[str] = []
    async with queue.consumer(normal_share=0.1, low_share=0.05) as consumer:
        while len(taken) < 200:
            taken += [delivery.payload for delivery in await consumer.take(most=min(most, 200 - len(taken)))]

    counts = {priority: taken.count(priority) for priority in ("high", "normal", "low")}
    assert counts == {"high": 170, "normal": 20, "low": 10}
    await queue.purge()


async def test_shares_that_cannot_be_meant_are_refused(queue: Queue) -> None:
    with pytest.raises(WrongValue):
        queue.consumer(low_share=0.9)
    with pytest.raises(WrongValue):
        queue.consumer(lease_s=0)


# -- waiting for tasks ---------------------------------------------------------------------------------------------


async def test_a_waiting_consumer_is_woken_by_a_push(queue: Queue, consumer: Consumer) -> None:
    taking = asyncio.create_task(consumer.take(wait_s=30))
    await until_idle(queue, 1)
    await queue.push("now")

    # The look that is taken anyway comes after a second at the earliest.
    async with asyncio.timeout(20):
        [delivery] = await taking
    assert delivery.payload == "now"
    await consumer.finish(delivery)


async def test_as_many_are_woken_as_there_are_tasks(k: Kizuna, queue: Queue, root: str) -> None:
    woken: list[str] = []

    async def hear(ready: asyncio.Event) -> None:
        async with k.store.events.listen(f"{root}:queues:wake:images:*") as feed:
            ready.set()
            async for event in feed:
                if not isinstance(event, LookAgain):
                    woken.append(event.channel)  # noqa: PERF401 - it is read while it grows

    ready = asyncio.Event()
    hearing = asyncio.create_task(hear(ready))
    await ready.wait()
    for number in range(5):
        await k.store.call("ZADD", f"{root}:queues:idle:images", number, f"consumer-{number}")
    await queue.push_many([1, 2])

    await eventually(lambda: len(woken) >= 2)
    await k.store.call("PUBLISH", f"{root}:queues:wake:images:last", "")
    await eventually(lambda: woken[-1].endswith("last"))
    hearing.cancel()
    assert sorted(woken)[:-1] == [f"{root}:queues:wake:images:consumer-{number}" for number in range(2)]
    await k.store.call("DEL", f"{root}:queues:idle:images")
    await queue.purge()


async def test_who_waits_in_vain_gets_none_and_is_waited_for_no_longer(k: Kizuna, queue: Queue, root: str) -> None:
    async with queue.consumer() as consumer:
        assert await consumer.take(wait_s=0.05) == []
    assert await queue.pop(wait_s=0.05) is None
    assert await k.store.call("EXISTS", f"{root}:queues:idle:images", f"{root}:queues:consumers:images") == 0


async def test_a_pop_waits_for_a_push(queue: Queue) -> None:
    popping = asyncio.create_task(queue.pop(wait_s=30))
    await until_idle(queue, 1)
    await queue.push("now")

    delivery = await popping
    assert delivery is not None
    await delivery.done()


async def test_a_wake_up_that_was_lost_is_made_up_for(k: Kizuna, queue: Queue, consumer: Consumer, root: str) -> None:
    taking = asyncio.create_task(consumer.take(wait_s=30))
    await until_idle(queue, 1)
    await k.store.call("DEL", f"{root}:queues:idle:images")
    await queue.push("unheard")

    [delivery] = await taking
    assert delivery.payload == "unheard"
    await consumer.finish(delivery)


async def test_many_takers_never_get_one_task_twice(queue: Queue) -> None:
    tasks = await queue.push_many(range(300))
    got: list[str] = []

    async def work() -> None:
        async with queue.consumer() as consumer:
            while len(got) < 300:
                for delivery in await consumer.take(most=3, wait_s=0.2):
                    got.append(delivery.id)
                    consumer.finish(delivery)

    await asyncio.gather(*(work() for _ in range(12)))
    assert sorted(got) == sorted(task.id for task in tasks)


async def test_what_is_handed_out_to_a_take_that_was_cancelled_goes_to_the_next(queue: Queue) -> None:
    async with queue.consumer() as consumer:
        for _ in range(10):
            await queue.push("precious")
            taking = asyncio.create_task(consumer.take(wait_s=5))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            taking.cancel()
            [delivery] = await taking if not await cancelled(taking) else await consumer.take(wait_s=5)
            await consumer.finish(delivery)
    assert (await queue.depth()).waiting == 0


async def test_a_pop_that_is_cancelled_leaves_nothing_behind(queue: Queue) -> None:
    popping = asyncio.create_task(queue.pop(wait_s=30))
    await until_idle(queue, 1)
    popping.cancel()
    assert await cancelled(popping)

    assert await queue.consumers() == {}
    await until_idle(queue, 0)


async def test_what_a_consumer_still_holds_when_it_leaves_goes_back_without_blame(queue: Queue) -> None:
    await queue.push_many([1, 2, 3])
    async with queue.consumer() as consumer:
        assert len(await consumer.take(most=2)) == 2
    assert await queue.consumers() == {}

    depth = await queue.depth()
    assert (depth.normal, depth.running) == (3, 0)
    async with queue.consumer() as consumer:
        assert [delivery.attempt for delivery in await consumer.take(most=5)] == [1, 1, 1]
    await queue.purge()


# -- settling from elsewhere ---------------------------------------------------------------------------------------


async def test_another_process_settles_a_task_by_its_token(settings: Settings, queue: Queue) -> None:
    task = await queue.push("x", result_s=100)
    delivery = await queue.pop(lease_s=60)
    assert delivery is not None
    async with connect(settings) as other:
        elsewhere = other.queue("images")
        await elsewhere.renew(task.id, delivery.token, lease_s=120)
        assert next(iter((await queue.consumers()).values())) > 60
        assert await elsewhere.settle(task.id, delivery.token, {"ok": 1}) == "done"
        with pytest.raises(LeaseLost):
            await elsewhere.settle(task.id, delivery.token, {"ok": 2})
        with pytest.raises(WrongValue):
            await elsewhere.settle(task.id, "nonsense")

    assert await task.result(timeout_s=5) == {"ok": 1}
    assert await queue.consumers() == {}


async def test_another_process_fails_a_task_by_its_token(queue: Queue) -> None:
    task = await queue.push("x")
    delivery = await queue.pop()
    assert delivery is not None

    assert await queue.settle(task.id, delivery.token, error="broken", retry=False) == "dead"
    assert (await queue.status(task.id)).reason == "broken"


async def until_idle(queue: Queue, number: int) -> None:
    """Until so many consumers wait."""
    idle = f"{queue._keys.idle}"

    async def look() -> bool:
        return int(await queue._store.call("ZCARD", idle)) == number

    await eventually(look)


async def cancelled(task: asyncio.Task[object]) -> bool:
    await asyncio.wait([task])
    return task.cancelled()


async def test_the_results_of_many_come_in_the_order_of_their_tasks(k: Kizuna) -> None:
    queue = k.queue("images")
    tasks = await queue.push_many([*range(20), "bad"])
    async with queue.consumer() as consumer:
        for delivery in reversed(await consumer.take(most=30)):
            if delivery.payload == "bad":
                await consumer.fail(delivery, "as expected", retry=False)
            else:
                await consumer.finish(delivery, delivery.payload * 2)

    assert await queue.results(tasks[:-1], timeout_s=5) == [number * 2 for number in range(20)]
    *_, failure = await queue.results(tasks, timeout_s=5, return_errors=True)
    assert isinstance(failure, TaskFailed)
    with pytest.raises(TaskFailed, match="as expected"):
        await queue.results(tasks, timeout_s=5)


async def test_waiting_for_the_results_of_many_ends_in_time_or_when_it_is_cancelled(k: Kizuna) -> None:
    queue = k.queue("images")
    tasks = await queue.push_many(range(3))

    with pytest.raises(TimeoutError):
        await queue.results(tasks, timeout_s=0.05)
    waiting = asyncio.create_task(queue.results(tasks))
    await eventually(lambda: len(queue._results._waiting) == 3)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert queue._results._waiting == {}
