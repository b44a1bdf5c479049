"""Programs that know the keys and nothing else: they push with redis-cli, and read the result with redis-cli."""

from __future__ import annotations

import hashlib
import json

import pytest

from kizuna.app import Kizuna
from kizuna.codecs import RAW
from kizuna.coordination.queues import Queue
from kizuna.coordination.queues.tasks import Delivery
from kizuna.errors import Refused
from kizuna.testing import ServerProcess


@pytest.fixture
def queue(k: Kizuna) -> Queue:
    return k.queue(codec=RAW)


async def popped(queue: Queue) -> Delivery:
    delivery = await queue.pop()
    assert delivery is not None
    return delivery


async def test_a_task_with_a_payload_is_done_for_them(server: ServerProcess, root: str, queue: Queue) -> None:
    server.call("HSET", f"{root}:task:info:task-123", "payload", '{"n": 1}')
    server.call("LPUSH", f"{root}:queue:high", "task-123")
    assert (await queue.depth()).high == 1

    delivery = await popped(queue)
    assert (delivery.id, delivery.payload, delivery.priority, delivery.attempt) == ("task-123", b'{"n": 1}', "high", 1)
    assert (await queue.status("task-123")).state == "running"
    await delivery.done(b"42")
    assert server.call("GET", f"{root}:task:result:task-123") == b"42"
    assert server.call("EXISTS", f"{root}:task:info:task-123") == 0


async def test_the_payload_may_be_a_plain_string(server: ServerProcess, root: str, queue: Queue) -> None:
    server.call("SET", f"{root}:task:info:t1", "do it")
    server.call("LPUSH", f"{root}:queue:low", "t1")

    delivery = await popped(queue)
    assert (delivery.id, delivery.payload, delivery.priority) == ("t1", b"do it", "low")
    assert (await queue.status("t1")).state == "running"
    await delivery.done()


async def test_an_entry_that_stands_for_itself_is_its_own_payload(
    server: ServerProcess, root: str, queue: Queue
) -> None:
    server.call("LPUSH", f"{root}:queue:normal", "t1", '{"send": "mail to: all*"}', b"\xff\x00")

    first, second, third = [await popped(queue) for _ in range(3)]
    assert (first.id, first.payload) == ("t1", b"t1")
    assert (second.id, second.payload) == (sha1(b'{"send": "mail to: all*"}'), b'{"send": "mail to: all*"}')
    assert (third.id, third.payload) == (sha1(b"\xff\x00"), b"\xff\x00")
    for delivery in (first, second, third):
        await delivery.done(b"ok")
        assert server.call("GET", f"{root}:task:result:{delivery.id}") == b"ok"


async def test_fields_of_their_own_are_the_payload(server: ServerProcess, root: str, queue: Queue) -> None:
    server.call("HSET", f"{root}:task:info:t1", "colour", "blue", "size", "3")
    server.call("LPUSH", f"{root}:queue:normal", "t1")

    delivery = await popped(queue)
    assert (delivery.id, json.loads(delivery.payload)) == ("t1", {"colour": "blue", "size": "3"})
    await delivery.done()


async def test_what_is_something_else_altogether_is_left_alone(server: ServerProcess, root: str, queue: Queue) -> None:
    server.call("SADD", f"{root}:task:info:t1", "a set")
    server.call("LPUSH", f"{root}:queue:normal", "t1")

    delivery = await popped(queue)
    assert (delivery.id, delivery.payload) == (sha1(b"t1"), b"t1")
    await delivery.done()
    assert server.call("SMEMBERS", f"{root}:task:info:t1") == [b"a set"]
    server.call("DEL", f"{root}:task:info:t1")


async def test_an_adopted_task_has_the_same_rights_as_any_other(server: ServerProcess, root: str, queue: Queue) -> None:
    server.call("HSET", f"{root}:task:info:t1", "payload", "x")
    server.call("LPUSH", f"{root}:queue:high", "t1")
    lost = await popped(queue)
    server.call("ZADD", f"{root}:queues:consumers:default", "XX", 1, lost.holder.id)

    again = await popped(queue)
    assert (again.id, again.payload, again.attempt, again.priority) == ("t1", b"x", 2, "high")
    assert await again.fail("bad", retry=False) == "dead"
    assert await queue.requeue("t1") == 1
    assert await queue.cancel("t1")


async def test_an_entry_that_stands_twice_is_one_task(server: ServerProcess, root: str, queue: Queue) -> None:
    await queue.push("x", id="t1")
    server.call("LPUSH", f"{root}:queue:normal", "t1")
    server.call("LPUSH", f"{root}:queue:high", "t1", "t2", "t2")

    async with queue.consumer() as consumer:
        deliveries = await consumer.take(most=50)
        assert sorted(delivery.id for delivery in deliveries) == ["t1", "t2"]
        assert await consumer.take(wait_s=0) == []
        server.call("LPUSH", f"{root}:queue:high", "t1")
        assert await consumer.take(wait_s=0) == []
        for delivery in deliveries:
            consumer.finish(delivery)


async def test_they_wait_for_a_result_by_the_id(server: ServerProcess, root: str, queue: Queue) -> None:
    server.call("HSET", f"{root}:task:info:t1", "payload", "x")
    server.call("LPUSH", f"{root}:queue:normal", "t1")
    assert (await queue.status("t1")).state == "waiting"

    with pytest.raises(TimeoutError):
        await queue.result("t1", timeout_s=0.05)
    await (await popped(queue)).done(b"y")
    assert await queue.result("t1", timeout_s=5) == b"y"


async def test_their_entries_are_purged_with_the_others(server: ServerProcess, root: str, queue: Queue) -> None:
    server.call("SET", f"{root}:task:info:t1", "x")
    server.call("LPUSH", f"{root}:queue:normal", "t1", "t2")

    assert await queue.purge() == 2
    assert server.call("EXISTS", f"{root}:task:info:t1") == 0


async def test_a_queue_that_is_no_list_is_named_and_nothing_is_done(
    server: ServerProcess, root: str, queue: Queue
) -> None:
    server.call("SET", f"{root}:queue:high", "oops")

    with pytest.raises(Refused, match="WRONGTYPE"):
        await queue.push("x", id="t1", priority="high")
    assert server.call("EXISTS", f"{root}:task:info:t1") == 0
    with pytest.raises(Refused, match="WRONGTYPE"):
        await queue.pop()
    server.call("DEL", f"{root}:queue:high")


def sha1(entry: bytes) -> str:
    return hashlib.sha1(entry, usedforsecurity=False).hexdigest()


async def test_what_they_call_its_state_is_no_obstacle(server: ServerProcess, root: str, queue: Queue) -> None:
    server.call("HSET", f"{root}:task:info:t1", "payload", "x", "state", "dead")
    server.call("LPUSH", f"{root}:queue:normal", "t1")
    lost = await popped(queue)
    server.call("ZADD", f"{root}:queues:consumers:default", "XX", 1, lost.holder.id)

    again = await popped(queue)
    assert (again.id, again.payload, again.attempt) == ("t1", b"x", 2)
    await again.done()


async def test_an_entry_for_a_task_that_runs_is_not_another_task(
    server: ServerProcess, root: str, queue: Queue
) -> None:
    task = await queue.push(b"x")
    delivery = await popped(queue)
    server.call("LPUSH", f"{root}:queue:high", task.id)

    assert await queue.pop() is None
    await delivery.done(b"once")
    assert await task.result(timeout_s=5) == b"once"
