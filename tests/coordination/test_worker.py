from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from kizuna import Kizuna, Settings, connect
from kizuna.codecs import RAW
from kizuna.coordination.queues.tasks import Delivery, Push
from kizuna.coordination.worker import Worker
from kizuna.coordination.worker.handlers import DeliveryInThread, GiveUp, RetryIn
from kizuna.errors import LeaseLost, ServiceFailed, StoreError, TaskCancelled, TaskFailed, WrongValue
from kizuna.metrics import Metrics
from kizuna.service import running
from kizuna.settings import CoordinationSettings, QueuesSettings, StoreSettings
from kizuna.testing import ClusterSetup, SentinelSetup, ServerProcess, eventually
from kizuna.testing.services import assert_starts_and_stops

WITHIN_S = 20.0


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Whatever fails is tried again at once."""
    return msgspec.structs.replace(settings, queues=QueuesSettings(retry_first_s=0.01, retry_longest_s=0.02))


@pytest_asyncio.fixture
async def k(settings: Settings) -> AsyncIterator[Kizuna]:
    async with connect(settings) as k:
        yield k


async def reason(k: Kizuna, worker: Worker, payload: Any = None, **options: Any) -> str:
    """Why a task was given up."""
    task = await k.queue().push(payload, **options)
    async with running(worker):
        with pytest.raises(TaskFailed) as given_up:
            await task.result(timeout_s=WITHIN_S)
    return given_up.value.reason


# handlers


async def test_functions_of_both_kinds_return_results(k: Kizuna) -> None:
    worker, queue = Worker(k, "images"), k.queue("images")

    @worker.handler("double")
    async def double(payload: int) -> int:
        return payload * 2

    @worker.handler()
    def where(payload: None) -> str:
        return threading.current_thread().name

    doubled, in_thread = await queue.push(21, name="double"), await queue.push(None)
    async with running(worker):
        assert await doubled.result(timeout_s=WITHIN_S) == 42
        assert (await in_thread.result(timeout_s=WITHIN_S)).startswith("kizuna-worker")


async def test_handlers_that_ask_for_the_delivery_tell_how_far_they_are(k: Kizuna) -> None:
    worker, queue, go_on = Worker(k), k.queue(), threading.Event()

    @worker.handler("async")
    async def in_loop(payload: str, delivery: Delivery) -> list[Any]:
        await delivery.progress(0.25, "a quarter")
        await asyncio.to_thread(go_on.wait)
        return [delivery.id, delivery.attempt]

    @worker.handler("plain")
    def in_thread(payload: str, delivery: DeliveryInThread) -> list[Any]:
        delivery.progress(0.5, "half")
        go_on.wait()
        return [delivery.id, delivery.attempt]

    tasks = [await queue.push("x", id=f"t-{name}", name=name) for name in ("async", "plain")]

    async def both_have_told() -> bool:
        told = [await queue.status(task.id) for task in tasks]
        return [(one.progress, one.note) for one in told] == [(0.25, "a quarter"), (0.5, "half")]

    async with running(worker):
        try:
            await eventually(both_have_told)
        finally:
            go_on.set()
        assert [await task.result(timeout_s=WITHIN_S) for task in tasks] == [["t-async", 1], ["t-plain", 1]]


async def test_the_handler_for_all_takes_what_has_no_other(k: Kizuna) -> None:
    worker, queue = Worker(k), k.queue()
    worker.handler("known")(lambda payload: "its own")
    worker.handler("*")(lambda payload: "the one for all")

    tasks = [await queue.push(None, name=name) for name in ("known", "unknown", "")]
    async with running(worker):
        results = [await task.result(timeout_s=WITHIN_S) for task in tasks]

    assert results == ["its own", "the one for all", "the one for all"]


@pytest.mark.parametrize("function", [lambda: None, lambda payload, size: None])
async def test_a_function_that_cannot_be_called_with_a_payload_is_refused_at_once(
    k: Kizuna, function: Callable[..., Any]
) -> None:
    with pytest.raises(WrongValue, match="expected one that takes the payload"):
        Worker(k).handler()(function)


async def test_one_name_has_one_handler(k: Kizuna) -> None:
    worker = Worker(k)
    worker.handler("a")(print)

    with pytest.raises(WrongValue, match="one function for each name"):
        worker.handler("a")(print)


async def test_a_worker_without_handlers_or_places_does_not_start(k: Kizuna) -> None:
    with pytest.raises(WrongValue, match=r"@worker\.handler"):
        async with running(Worker(k)):
            pass
    with pytest.raises(WrongValue, match="1 or more"):
        Worker(k, concurrency=0)


async def test_what_a_handler_sets_in_its_context_stays_there(k: Kizuna) -> None:
    worker, seen = Worker(k, concurrency=1), contextvars.ContextVar("seen", default="nothing")

    @worker.handler("async")
    async def in_loop(payload: str) -> str:
        before = seen.get()
        seen.set(payload)
        return before

    @worker.handler("plain")
    def in_thread(payload: str) -> str:
        before = seen.get()
        seen.set(payload)
        return before

    tasks = [await k.queue().push("mine", name=name) for name in ("async", "plain", "async", "plain")]
    async with running(worker):
        assert {await task.result(timeout_s=WITHIN_S) for task in tasks} == {"nothing"}


# what fails


async def test_a_failure_is_tried_again_and_tells_what_went_wrong_and_where(k: Kizuna) -> None:
    worker, attempts = Worker(k), []

    @worker.handler()
    async def resize(payload: None, delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        raise ValueError("no such\nsize")

    said = await reason(k, worker, attempts=2)

    line = resize.__code__.co_firstlineno + 3
    assert said == f"ValueError: no such size (test_worker.py:{line} in resize)"
    assert attempts == [1, 2]
    assert worker.counts["default"].failed == 2


async def test_a_second_attempt_may_succeed(k: Kizuna) -> None:
    worker = Worker(k)

    @worker.handler()
    def only_the_second_time(payload: None, delivery: DeliveryInThread) -> str:
        if delivery.attempt == 1:
            raise OSError("not yet")
        return "done"

    task = await k.queue().push(None)
    async with running(worker):
        assert await task.result(timeout_s=WITHIN_S) == "done"


async def test_giving_up_is_final(k: Kizuna) -> None:
    worker, runs = Worker(k), []

    @worker.handler()
    async def never(payload: None) -> None:
        runs.append(1)
        raise GiveUp("there is no such customer")

    assert await reason(k, worker, attempts=5) == "there is no such customer"
    assert runs == [1]


async def test_a_handler_says_when_it_wants_to_be_tried_again(k: Kizuna) -> None:
    worker, queue = Worker(k), k.queue()

    @worker.handler()
    async def wait_for_the_shop(payload: float, delivery: Delivery) -> int:
        if delivery.attempt == 1:
            raise RetryIn(payload, "the shop is closed")
        return delivery.attempt

    soon, late = await queue.push(0.01), await queue.push(3600)
    async with running(worker):
        assert await soon.result(timeout_s=WITHIN_S) == 2
        await eventually(lambda: depth_is(queue, delayed=1, running=0))
        status = await queue.status(late.id)

    # By the settings it would be tried again at once.
    assert (status.state, status.reason, status.failures) == ("delayed", "the shop is closed", 1)


async def test_a_name_that_nobody_handles_is_a_dead_letter_that_says_who_is_there(k: Kizuna) -> None:
    worker = Worker(k)
    worker.handler("resize")(print)
    worker.handler()(print)

    said = await reason(k, worker, name="resise")

    assert said == "no handler for 'resise'; this worker has handlers for tasks without a name, 'resize'"


async def test_a_payload_in_another_format_is_a_dead_letter_and_the_worker_goes_on(k: Kizuna) -> None:
    worker = Worker(k)
    worker.handler()(lambda payload: payload)
    broken = await k.queue(codec=RAW).push(b"\xff no json")
    good = await k.queue().push("good")

    async with running(worker):
        with pytest.raises(TaskFailed, match="is not the JSON it should be"):
            await broken.result(timeout_s=WITHIN_S)
        assert await good.result(timeout_s=WITHIN_S) == "good"


async def test_a_result_that_cannot_be_kept_is_told(k: Kizuna) -> None:
    worker = Worker(k)
    worker.handler()(lambda payload: object())

    said = await reason(k, worker)

    assert said == "its result cannot be kept: Encoding objects of type object is unsupported"


async def test_exit_and_cancellation_inside_a_handler_are_failures_like_any_other(k: Kizuna) -> None:
    worker = Worker(k)

    @worker.handler("exit")
    def leave(payload: None) -> None:
        raise SystemExit(3)

    @worker.handler("cancel")
    async def wait_for_what_was_cancelled(payload: None) -> None:
        await asyncio.gather(asyncio.create_task(cancelled()))

    async def cancelled() -> None:
        raise asyncio.CancelledError

    @worker.handler("group")
    async def raise_a_group(payload: None) -> None:
        raise BaseExceptionGroup("all of them", [SystemExit(4)])

    assert (await reason(k, worker, name="exit", attempts=1)).startswith("SystemExit: 3 (")
    assert (await reason(k, worker, name="group", attempts=1)).startswith("BaseExceptionGroup: all of them")
    assert (await reason(k, worker, name="cancel", attempts=1)).startswith("CancelledError: something that")


# time


async def test_a_task_that_takes_too_long_is_cancelled(k: Kizuna) -> None:
    worker, ended = Worker(k, timeout_s=0.05), []

    @worker.handler()
    async def sleep(payload: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(payload)

    assert await reason(k, worker, "by default", attempts=1) == "not done within 0.05s"
    assert await reason(k, worker, "its own", attempts=1, timeout_s=0.02) == "not done within 0.02s"
    assert ended == ["by default", "its own"]
    assert worker.counts["default"].timed_out == 2


async def test_a_timeout_inside_a_handler_is_its_own(k: Kizuna) -> None:
    worker = Worker(k, timeout_s=30)

    @worker.handler()
    async def ask(payload: None) -> None:
        raise TimeoutError("the shop does not answer")

    assert (await reason(k, worker, attempts=1)).startswith("TimeoutError: the shop does not answer (")
    assert worker.counts["default"].timed_out == 0


async def test_a_thread_that_takes_too_long_fails_its_task_and_keeps_its_place(k: Kizuna) -> None:
    worker, queue = Worker(k, concurrency=1), k.queue()
    begun, go_on = threading.Event(), threading.Event()

    @worker.handler()
    def block(payload: str) -> str:
        if payload == "blocks":
            begun.set()
            go_on.wait()
        return payload

    blocking = await queue.push("blocks", timeout_s=1, attempts=1)
    async with running(worker):
        try:
            with pytest.raises(TaskFailed, match="not done within 1s"):
                await blocking.result(timeout_s=WITHIN_S)
            assert begun.is_set()
            after = await queue.push("after")
            with pytest.raises(TimeoutError):
                await after.result(timeout_s=0.2)
            assert worker.counts["default"].running == 1
        finally:
            go_on.set()
        assert await after.result(timeout_s=WITHIN_S) == "after"


# places


async def test_no_more_run_than_there_are_places(k: Kizuna) -> None:
    worker, now, most = Worker(k, concurrency=3), 0, 0

    @worker.handler()
    async def count(payload: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1

    tasks = await k.queue().push_many(range(20))
    async with running(worker):
        await asyncio.gather(*[task.result(timeout_s=WITHIN_S) for task in tasks])

    assert most == 3


@pytest.mark.parametrize(("prefetch", "held"), [(0, 2), (3, 5)])
async def test_no_more_are_taken_than_there_are_places_and_asked_for(k: Kizuna, prefetch: int, held: int) -> None:
    worker, queue, go_on = Worker(k, concurrency=2, prefetch=prefetch), k.queue(), asyncio.Event()
    began: list[int] = []

    @worker.handler()
    async def wait(payload: int) -> None:
        began.append(payload)
        await go_on.wait()

    tasks = await queue.push_many(range(8))
    async with running(worker):
        await eventually(lambda: began == [0, 1])
        await eventually(lambda: depth_is(queue, running=held, normal=8 - held))
        go_on.set()
        await asyncio.gather(*[task.result(timeout_s=WITHIN_S) for task in tasks])
        assert began == list(range(8))


async def depth_is(queue: Any, **numbers: int) -> bool:
    depth = msgspec.structs.asdict(await queue.depth())
    assert {name: depth[name] for name in numbers} == numbers
    return True


async def waits_for_tasks(k: Kizuna, group: str) -> bool:
    return bool(await k.store.call("ZCARD", f"{k.settings.roots.coordination}:queues:idle:{group}"))


async def test_several_groups_share_the_places_and_an_empty_one_takes_none(k: Kizuna) -> None:
    worker, go_on = Worker(k, "busy", "quiet", concurrency=2), asyncio.Event()
    began: list[str] = []

    @worker.handler()
    async def wait(payload: str) -> str:
        began.append(payload)
        await go_on.wait()
        return payload

    async with running(worker):
        await eventually(lambda: waits_for_tasks(k, "busy"))
        await eventually(lambda: waits_for_tasks(k, "quiet"))
        tasks = await k.queue("busy").push_many(["busy"] * 5)
        await eventually(lambda: began == ["busy", "busy"])
        quiet = await k.queue("quiet").push("quiet")
        # It is handed to us while we wait for it, and handed back at once: there is no place for it.
        await eventually(lambda: worker.counts["quiet"].released == 1)
        await eventually(lambda: depth_is(k.queue("quiet"), normal=1, running=0))
        go_on.set()
        results = [await task.result(timeout_s=WITHIN_S) for task in (*tasks, quiet)]

    assert results == ["busy"] * 5 + ["quiet"]
    assert worker.counts["quiet"].done == 1


# what is taken away


async def test_a_cancelled_task_is_cancelled_where_it_runs(k: Kizuna) -> None:
    worker, queue = Worker(k), k.queue()
    began, ended = asyncio.Event(), asyncio.Event()

    @worker.handler()
    async def wait(payload: None) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    task = await queue.push(None)
    async with running(worker):
        await asyncio.wait_for(began.wait(), WITHIN_S)
        assert await queue.cancel(task.id)
        await asyncio.wait_for(ended.wait(), WITHIN_S)
        await eventually(lambda: worker.counts["default"].running == 0)
        with pytest.raises(TaskCancelled):
            await task.result(timeout_s=WITHIN_S)

    counts = worker.counts["default"]
    assert (counts.lost, counts.done, counts.failed) == (1, 0, 0)


async def test_a_task_that_was_given_to_others_is_cancelled_where_it_ran(k: Kizuna, settings: Settings) -> None:
    worker, queue = Worker(k, lease_s=3), k.queue()
    runs: list[str] = []

    @worker.handler()
    async def wait(payload: None, delivery: Delivery) -> int:
        runs.append("began")
        if delivery.attempt == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                runs.append("cancelled")
                raise
        return delivery.attempt

    task = await queue.push(None)
    async with running(worker), connect(settings) as other:
        await eventually(lambda: runs == ["began"])
        # As if we had been taken for dead.
        assert await other.queues.give_back(k.process) == 1
        assert await task.result(timeout_s=WITHIN_S) == 2
        await eventually(lambda: "cancelled" in runs)

    assert sorted(runs) == ["began", "began", "cancelled"]
    assert (worker.counts["default"].lost, worker.counts["default"].done) == (1, 1)


async def test_what_a_thread_returns_after_its_task_was_cancelled_does_not_count(k: Kizuna) -> None:
    worker, queue = Worker(k), k.queue()
    began, go_on, told = threading.Event(), threading.Event(), []

    @worker.handler()
    def wait(payload: None, delivery: DeliveryInThread) -> str:
        began.set()
        go_on.wait()
        try:
            delivery.progress(0.5)
        except LeaseLost as error:
            told.append(error.task)
        return "too late"

    task = await queue.push(None)
    async with running(worker):
        await eventually(began.is_set)
        await queue.cancel(task.id)
        await eventually(lambda: worker.counts["default"].lost == 1)
        go_on.set()
        await eventually(lambda: worker.counts["default"].running == 0)
        with pytest.raises(TaskCancelled):
            await task.result(timeout_s=WITHIN_S)

    assert told == [task.id]
    assert worker.counts["default"].done == 0


async def test_a_busy_event_loop_does_not_lose_its_task(settings: Settings, k: Kizuna) -> None:
    """Longer than the lease, and another worker is free for the task all the while."""
    runs: list[str] = []

    def other_worker(began: threading.Event, over: threading.Event) -> None:
        async def work() -> None:
            async with connect(settings) as other:
                worker = Worker(other, lease_s=2)
                worker.handler()(lambda payload: runs.append("the other one"))
                async with running(worker):
                    began.set()
                    await asyncio.to_thread(over.wait)

        asyncio.run(work())

    worker = Worker(k, lease_s=2)

    @worker.handler()
    async def block(payload: None) -> str:
        runs.append("the busy one")
        other.start()
        began.wait()
        time.sleep(3.5)  # noqa: ASYNC251 - what it is about
        return "done"

    began, over = threading.Event(), threading.Event()
    other = threading.Thread(target=other_worker, args=(began, over))
    task = await k.queue().push(None)
    try:
        async with running(worker):
            assert await task.result(timeout_s=WITHIN_S) == "done"
    finally:
        over.set()
        await asyncio.to_thread(other.join)

    assert runs == ["the busy one"]
    assert worker.counts["default"].lost == 0


# starting and stopping


async def test_told_to_stop_it_ends_what_it_has_begun_and_takes_no_more(k: Kizuna) -> None:
    worker, queue, go_on = Worker(k, concurrency=1, prefetch=1), k.queue(), asyncio.Event()
    began: list[str] = []

    @worker.handler()
    async def wait(payload: str) -> str:
        began.append(payload)
        await go_on.wait()
        return payload

    tasks, told = await queue.push_many(["runs", "prefetched", "waits"]), asyncio.Event()

    async def work() -> None:
        async with running(worker):
            await told.wait()

    working = asyncio.create_task(work())
    await eventually(lambda: depth_is(queue, running=2, normal=1))
    told.set()
    await eventually(lambda: depth_is(queue, running=1, normal=2))
    go_on.set()
    await working

    assert await tasks[0].result(timeout_s=WITHIN_S) == "runs"
    assert began == ["runs"]
    assert (await queue.status(tasks[1].id)).crashes == 0
    await depth_is(queue, running=0, normal=2)


async def test_what_does_not_end_in_time_is_handed_back_without_counting_as_a_crash(k: Kizuna) -> None:
    worker, queue, began = Worker(k), k.queue(), asyncio.Event()

    @worker.handler()
    async def wait(payload: None) -> None:
        began.set()
        await asyncio.sleep(60)

    task = await queue.push(None)
    async with running(worker, stop_timeout_s=0.05):
        await asyncio.wait_for(began.wait(), WITHIN_S)

    assert worker.counts["default"].released == 1
    status = await queue.status(task.id)
    assert (status.state, status.failures, status.crashes) == ("waiting", 0, 0)


async def test_it_starts_works_and_stops_again_and_again(k: Kizuna) -> None:
    queue = k.queue()

    def make() -> Worker:
        worker = Worker(k)
        worker.handler("async")(answer)
        return worker

    async def answer(payload: int) -> int:
        return payload

    async def check_working() -> None:
        assert await (await queue.push(1, name="async")).result(timeout_s=WITHIN_S) == 1

    await assert_starts_and_stops(make, times=10, check_working=check_working)


async def test_others_see_it(k: Kizuna) -> None:
    worker = Worker(k, "images", "mail")
    worker.handler()(print)

    async with running(worker):
        (process,) = await k.processes.active()
        assert (process.id, process.kind, process.info["groups"]) == (k.process, "worker", "images, mail")
    assert await k.processes.active() == []


async def test_it_can_be_measured(k: Kizuna) -> None:
    worker = Worker(k, "images")
    worker.handler()(lambda payload: payload)
    task = await k.queue("images").push(None)
    async with running(worker):
        await task.result(timeout_s=WITHIN_S)
        await eventually(lambda: worker.counts["images"].done == 1)

    page, _ = Metrics(worker.measures).page()

    assert b'kizuna_worker_taken_total{group="images"} 1.0' in page
    assert b'kizuna_worker_done_total{group="images"} 1.0' in page
    assert b'kizuna_worker_running{group="images"} 0.0' in page


# servers


async def test_it_outlives_a_restart_of_the_server(fresh_server: ServerProcess, settings: Settings) -> None:
    settings = msgspec.structs.replace(settings, store=StoreSettings(url=fresh_server.url, timeout_s=2))
    async with connect(settings) as k:
        worker, queue, go_on = Worker(k), k.queue(), asyncio.Event()

        @worker.handler()
        async def wait(payload: str) -> str:
            await go_on.wait()
            return payload

        before = await queue.push("before")
        async with running(worker):
            await eventually(lambda: worker.counts["default"].running == 1)
            fresh_server.kill()
            go_on.set()
            fresh_server.start()
            assert await eventually(lambda: result(before), within_s=WITHIN_S) == "before"
            after = await eventually(lambda: pushed(queue), within_s=WITHIN_S)
            assert await eventually(lambda: result(after), within_s=WITHIN_S) == "after"


async def result(task: Any) -> Any:
    """As long as the server is away, None."""
    try:
        return await task.result(timeout_s=1)
    except (StoreError, TimeoutError):
        return None


async def pushed(queue: Any) -> Any:
    try:
        return await queue.push("after", id="after")
    except StoreError:
        return None


async def test_a_server_that_denies_a_key_ends_it_with_a_sentence(
    fresh_server: ServerProcess, settings: Settings
) -> None:
    settings = msgspec.structs.replace(settings, store=StoreSettings(url=fresh_server.url))
    async with connect(settings) as k:
        worker = Worker(k)
        worker.handler()(print)

        async def work() -> None:
            async with running(worker):
                fresh_server.call("ACL", "SETUSER", "default", "-evalsha", "-eval")
                await asyncio.sleep(WITHIN_S)

        with pytest.raises(ServiceFailed, match="NOPERM"):
            await work()


async def test_it_works_on_a_cluster(cluster: ClusterSetup, settings: Settings) -> None:
    settings = msgspec.structs.replace(
        settings, store=StoreSettings(url=cluster.url), coordination=CoordinationSettings(shards=6)
    )
    await check_three_groups(settings)


async def test_it_works_behind_sentinels(sentinel: SentinelSetup, settings: Settings) -> None:
    await check_three_groups(msgspec.structs.replace(settings, store=StoreSettings(url=sentinel.url)))


async def check_three_groups(settings: Settings) -> None:
    groups = ("red", "green", "blue")
    async with connect(settings) as k:
        worker = Worker(k, *groups)
        worker.handler()(lambda payload: payload)
        async with running(worker):
            for group in groups:
                tasks = await k.queue(group).push_many([Push(payload=n, priority="low") for n in range(5)])
                assert [await task.result(timeout_s=WITHIN_S) for task in tasks] == list(range(5))
