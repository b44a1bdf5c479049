"""A server that is full, restarts, breaks off or says no: a clear error, and nothing half done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.coordination.queues import Queue
from kizuna.coordination.queues.consumers import Consumer
from kizuna.coordination.queues.tasks import Delivery
from kizuna.errors import KizunaError, OutcomeUnknown, OutOfMemory, PermissionDenied, StoreError
from kizuna.settings import EventsSettings, Settings, StoreSettings
from kizuna.testing import ChaosProxy, ServerProcess, eventually

MakeProxy = Callable[..., Awaitable[ChaosProxy]]


def at(url: str, **options: Any) -> Settings:
    return Settings(store=StoreSettings(url=url, **options))


def everything(server: ServerProcess) -> dict[bytes, object]:
    """All keys and what they hold; without those that only count."""
    with server.connect() as conversation:
        keys = [key for key in conversation.call("KEYS", "*") if b":queues:rates:" not in key]
        return {key: conversation.call("DUMP", key) for key in keys}


async def popped(queue: Queue) -> Delivery:
    delivery = await queue.pop(lease_s=60)
    assert delivery is not None
    return delivery


# -- full ----------------------------------------------------------------------------------------------------------


async def test_a_full_server_takes_no_more_tasks_and_lets_those_it_has_be_worked_down(
    fresh_server: ServerProcess,
) -> None:
    async with connect(at(fresh_server.url)) as k:
        queue = k.queue("images")
        first, second, third, fourth, fifth = await queue.push_many(range(5))
        late = await queue.push("late", delay_s=1000)
        fresh_server.call("CONFIG", "SET", "maxmemory", 1)
        before = everything(fresh_server)

        for refused in (queue.push("x"), queue.push("x", id="t1"), queue.push_many([1, 2]), queue.push(1, delay_s=9)):
            with pytest.raises(OutOfMemory):
                await refused
        assert everything(fresh_server) == before

        async with queue.consumer() as consumer:
            one, two, three, four = await consumer.take(most=4)
            await one.progress(0.5, "works")
            await consumer.finish(one, "done")
            assert await consumer.fail(two, "bad") == "delayed"
            assert await consumer.fail(three, "bad", retry=False) == "dead"
            await consumer.release(four)
            await consumer.renew()
            assert await queue.cancel(fifth.id)
            fresh_server.call("CONFIG", "SET", "maxmemory", 0)
            await k.store.call("ZADD", queue._keys.delayed, "XX", 1, late.id)
            fresh_server.call("CONFIG", "SET", "maxmemory", 1)
            payloads = {delivery.payload for delivery in [*await consumer.take(most=9), *await consumer.take(most=9)]}
            assert payloads == {3, "late"}
            assert await queue.requeue(third.id) == 1
        fresh_server.call("CONFIG", "SET", "maxmemory", 0)
        assert await first.result(timeout_s=5) == "done"
        states = [(await queue.status(task.id)).state for task in (second, third, fourth, fifth, late)]
        assert states == ["delayed", "waiting", "waiting", "cancelled", "waiting"]
        fresh_server.call("CONFIG", "SET", "maxmemory", 1)
        assert await queue.purge() == 3


@pytest.mark.parametrize("keys", ["poppo:task:info:*", "poppo:queue:*"])
async def test_what_may_not_be_put_right_stays_as_it_is(keys: str) -> None:
    with a_server_that_denies(keys) as server:
        async with connect(at(server.url)) as admin:
            queue = admin.queue()
            dead, _ = await queue.push_many([1, 2])
            await (await popped(queue)).fail("bad", retry=False)
            held = await popped(queue)
            await queue.push(3)
            before = everything(server)
            async with connect(at(server.url, username="worker", password="secret")) as k:
                other = k.queue()
                for refused in (
                    other.requeue(dead.id),
                    other.requeue(),
                    other.purge(),
                    k.queues.give_back(admin.process),
                ):
                    with pytest.raises(PermissionDenied):
                        await refused
            assert everything(server) == before
            await held.done()


# -- restarted -----------------------------------------------------------------------------------------------------


async def test_tasks_survive_a_restart_of_the_server(fresh_server: ServerProcess) -> None:
    async with connect(at(fresh_server.url, timeout_s=10)) as k:
        queue = k.queue("images")
        tasks = await queue.push_many(range(20))
        async with queue.consumer(lease_s=60) as consumer:
            held = await consumer.take(most=10)
            waiting = asyncio.gather(*(task.result(timeout_s=30) for task in tasks))
            await eventually(lambda: len(queue._results._waiting) == 20)
            await asyncio.to_thread(fresh_server.restart)

            await asyncio.gather(*(consumer.finish(delivery, delivery.payload) for delivery in held))
            for delivery in await eventually(lambda: taken(consumer)):
                await consumer.finish(delivery, delivery.payload)
            assert await waiting == list(range(20))


async def taken(consumer: Consumer) -> list[Delivery]:
    try:
        return await consumer.take(most=10, wait_s=1)
    except StoreError:
        return []


# -- broken off ----------------------------------------------------------------------------------------------------


async def test_a_push_whose_answer_is_lost_is_repeated_and_pushed_once(settings: Settings, proxy: MakeProxy) -> None:
    between = await proxy()
    async with connect(msgspec.structs.replace(settings, store=StoreSettings(url=between.url))) as k:
        queue = k.queue("images")
        await queue.push("warm up")
        between.drop_replies(1, then="cut")
        task = await queue.push("x")
        assert not task.known
        between.drop_replies(1, then="cut")
        await queue.push("y", id="t1")
        between.drop_replies(1, then="cut")
        many = await queue.push_many(range(10))

        assert (await queue.depth()).normal == 13
        assert (await queue.status(task.id)).state == "waiting"
        assert not any(task.known for task in many)
        await queue.purge()


async def test_a_result_whose_answer_is_lost_is_committed_once_and_told_so(
    settings: Settings, proxy: MakeProxy
) -> None:
    between = await proxy()
    async with connect(msgspec.structs.replace(settings, store=StoreSettings(url=between.url))) as k:
        queue = k.queue("images")
        task = await queue.push("x")
        delivery = await popped(queue)
        between.drop_replies(1, then="cut")
        await delivery.done("once")

        assert await task.result(timeout_s=5) == "once"
        assert sum(minute.done for minute in await queue.rates()) == 1


async def test_who_waits_for_a_result_does_not_mind_an_answer_that_is_lost_on_the_way(
    settings: Settings, proxy: MakeProxy
) -> None:
    between = await proxy()
    # No canary in between: the reply that is lost is the one that is meant.
    store, events = StoreSettings(url=between.url, timeout_s=2), EventsSettings(canary_every_s=60)
    through = msgspec.structs.replace(settings, store=store, events=events)
    async with connect(settings) as other, connect(through) as k:
        tasks = await other.queue("images").push_many(range(3))
        for _ in tasks:
            delivery = await popped(other.queue("images"))
            await delivery.done(delivery.payload)
        queue = k.queue("images")
        async with k.store.events.listen("something else"):
            # That it listens: the connection for that stands, and has heard its last.
            between.drop_replies(1)
            assert await queue.result(tasks[0].id, timeout_s=20) == 0
            # What it found.
            between.drop_replies(1, then="cut")
            assert await queue.result(tasks[1].id, timeout_s=20) == 1
            between.drop_replies(1)
            assert await queue.result(tasks[2].id, timeout_s=20) == 2


async def test_a_task_that_was_handed_out_on_a_connection_that_broke_is_not_lost(
    settings: Settings, proxy: MakeProxy
) -> None:
    between = await proxy()
    async with connect(msgspec.structs.replace(settings, store=StoreSettings(url=between.url))) as k:
        queue = k.queue("images")
        async with queue.consumer(lease_s=6) as consumer:
            assert await consumer.take(wait_s=0) == []
            task = await queue.push("x")
            between.drop_replies(1, then="cut")
            with pytest.raises(StoreError):
                await consumer.take(wait_s=0)

            [delivery] = await eventually(lambda: taken(consumer), within_s=20)
            assert (delivery.id, delivery.attempt) == (task.id, 1)
            await consumer.finish(delivery)


async def test_a_result_that_could_not_be_told_is_told_later_and_nobody_else_gets_the_task_meanwhile(
    settings: Settings, proxy: MakeProxy
) -> None:
    between = await proxy()
    impatient = StoreSettings(url=between.url, timeout_s=2)
    async with connect(settings) as other, connect(msgspec.structs.replace(settings, store=impatient)) as k:
        queue, lost = k.queue("images"), list[Delivery]()
        task = await queue.push("x")
        async with queue.consumer(lease_s=30) as consumer:
            consumer.on_lost = lost.append
            [delivery] = await consumer.take()
            between.refuse()
            await between.cut()
            with pytest.raises(StoreError):
                await consumer.finish(delivery, "told")
            await between.accept()
            await eventually(lambda: answers(k))
            await consumer._compare()
            assert consumer.held == 1
            assert await other.queue("images").pop() is None

            await consumer.finish(delivery, "told")
        assert await other.queue("images").result(task.id, timeout_s=5) == "told"
        assert lost == []


async def test_a_result_may_be_told_again_until_it_is_answered(settings: Settings, proxy: MakeProxy) -> None:
    between = await proxy()
    impatient = StoreSettings(url=between.url, timeout_s=2)
    async with connect(msgspec.structs.replace(settings, store=impatient)) as k:
        queue, lost = k.queue("images"), list[Delivery]()
        task = await queue.push("x")
        async with queue.consumer(lease_s=30) as consumer:
            consumer.on_lost = lost.append
            [delivery] = await consumer.take()
            between.drop_replies()
            with pytest.raises(OutcomeUnknown):
                await consumer.finish(delivery, "once")
            between.deliver_replies()
            await eventually(lambda: answers(k))
            await consumer._compare()

            await consumer.finish(delivery, "once")
        assert await task.result(timeout_s=5) == "once"
        assert sum(minute.done for minute in await queue.rates()) == 1
        assert lost == []


async def answers(k: Kizuna) -> bool:
    try:
        return bool(await k.store.call("PING"))
    except StoreError:
        return False


# -- denied --------------------------------------------------------------------------------------------------------

RULES = "on >secret &* +@all"


@contextmanager
def a_server_that_denies(keys: str) -> Iterator[ServerProcess]:
    """The user may read everything, and write everything but these keys."""
    families = ["poppo:task:info:*", "poppo:task:result:*", "poppo:queue:*", "poppo:queues:*"]
    allowed = " ".join(f"~{family}" for family in families if family != keys)
    with ServerProcess(users={"worker": f"{RULES} ~kizuna:* %R~poppo:* {allowed}"}) as server:
        yield server


@pytest.mark.parametrize("keys", ["poppo:task:info:*", "poppo:queue:*", "poppo:queues:*"])
async def test_a_push_that_is_denied_leaves_nothing(keys: str) -> None:
    with a_server_that_denies(keys) as server:
        async with connect(at(server.url, username="worker", password="secret")) as k:
            for refused in (k.queue().push("x"), k.queue().push("x", id="t1"), k.queue("images").push_many([1, 2])):
                with pytest.raises(PermissionDenied):
                    await refused
        assert everything(server) == {}


@pytest.mark.parametrize("keys", ["poppo:queue:*", "poppo:queues:*"])
async def test_a_task_that_cannot_be_handed_out_stays_where_it_is(keys: str) -> None:
    with a_server_that_denies(keys) as server:
        server.call("HSET", "poppo:task:info:t1", "payload", "1", "at", 1)
        server.call("LPUSH", "poppo:queue:normal", "t1")
        async with connect(at(server.url, username="worker", password="secret")) as k:
            with pytest.raises(PermissionDenied):
                await k.queue().pop()
        assert server.call("LRANGE", "poppo:queue:normal", 0, -1) == [b"t1"]
        assert server.call("KEYS", "poppo:queues:*") == []


@pytest.mark.parametrize("keys", ["poppo:task:info:*", "poppo:task:result:*"])
async def test_a_result_that_cannot_be_written_leaves_the_task_running(keys: str) -> None:
    with a_server_that_denies(keys) as server:
        async with connect(at(server.url)) as admin:
            task = await admin.queue().push("x")
            delivery = await popped(admin.queue())
            before = everything(server)
            async with connect(at(server.url, username="worker", password="secret")) as k:
                with pytest.raises(PermissionDenied):
                    await k.queue().settle(task.id, delivery.token, "result")
            assert everything(server) == before
            await delivery.done("result")
            assert await task.result(timeout_s=5) == "result"


@pytest.mark.parametrize("keys", ["poppo:task:info:*", "poppo:queues:*"])
async def test_a_failure_that_cannot_be_written_leaves_the_task_running(keys: str) -> None:
    with a_server_that_denies(keys) as server:
        async with connect(at(server.url)) as admin:
            task = await admin.queue().push("x")
            delivery = await popped(admin.queue())
            before = everything(server)
            async with connect(at(server.url, username="worker", password="secret")) as k:
                with pytest.raises(PermissionDenied):
                    await k.queue().settle(task.id, delivery.token, error="bad")
            assert everything(server) == before
            await delivery.done()


async def test_who_may_not_listen_is_told_so_and_not_left_waiting() -> None:
    users = {"deaf": "on >secret ~* resetchannels +@all"}
    with ServerProcess(users=users) as server:
        async with connect(at(server.url, username="deaf", password="secret")) as k:
            task = await k.queue().push("x")
            with pytest.raises(KizunaError):
                await task.result(timeout_s=5)
            with pytest.raises(PermissionDenied):
                async with k.queue().consumer():
                    pass
