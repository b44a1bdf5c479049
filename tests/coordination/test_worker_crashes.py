"""What becomes of a task when the process that has it is killed, or stopped, at the worst moments."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kizuna import Kizuna, Settings, connect
from kizuna.coordination.queues.tasks import Delivery, TaskStatus
from kizuna.coordination.worker import Worker
from kizuna.service import running
from kizuna.settings import ProcessesSettings, QueuesSettings
from kizuna.testing import eventually
from kizuna.testing.ledger import Ledger

WITHIN_S = 30.0
ALIVE = "of the one that lives"
ELSEWHERE_WITHIN_S = 5.0

Start = Callable[..., subprocess.Popen[bytes]]


def quick(settings: Settings) -> Settings:
    """Death is found within a second."""
    processes, queues = ProcessesSettings(heartbeat_every_s=0.2), QueuesSettings(retry_first_s=0.01)
    return msgspec.structs.replace(settings, processes=processes, queues=queues)


def answering(k: Kizuna, *groups: str) -> tuple[Worker, list[TaskStatus]]:
    """A worker, and what it was given."""
    worker, given = Worker(k, *groups), []

    @worker.handler()
    async def answer(payload: str, delivery: Delivery) -> str:
        statuses = await asyncio.gather(
            *[k.queue(group).status(delivery.id) for group in groups], return_exceptions=True
        )
        given.extend([status for status in statuses if isinstance(status, TaskStatus)])
        return ALIVE

    return worker, given


async def test_a_task_whose_consumer_died_before_the_acknowledgement_runs_again_and_no_other(
    settings: Settings, start: Start, ledger: Ledger
) -> None:
    settings = quick(settings)
    moments = ("before", "middle", "after", "acknowledged")
    async with connect(settings) as k:
        tasks = {moment: await k.queue(moment).push(None) for moment in moments}
        processes = [start("die_at", settings, group=moment, moment=moment) for moment in moments]
        for process in processes:
            assert await asyncio.to_thread(process.wait, WITHIN_S) == -signal.SIGKILL
        assert all(ledger.read(moment, task=task.id) for moment, task in tasks.items())

        worker, given = answering(k, *moments)
        async with running(worker):
            results = {moment: await task.result(timeout_s=WITHIN_S) for moment, task in tasks.items()}
            # Also what the last one held, nothing, was given back.
            await eventually(lambda: buried(k, len(moments)), within_s=WITHIN_S)

    again = ["before", "middle", "after"]
    assert results == dict.fromkeys(again, ALIVE) | {"acknowledged": "of the one that died"}
    assert sorted(task.id for task in given) == sorted(tasks[moment].id for moment in again)
    assert {(status.failures, status.crashes) for status in given} == {(0, 1)}


async def test_whoever_waits_for_a_task_finds_the_dead_and_whoever_takes_one_is_found(
    settings: Settings, start: Start, ledger: Ledger
) -> None:
    """No worker, no membership, and leases that do not end."""
    settings = msgspec.structs.replace(quick(settings), queues=QueuesSettings(lease_s=600))
    async with connect(settings) as k:
        of_consumer, of_pop = await k.queue("consumed").push(None), await k.queue("popped").push(None)
        start("die_at", settings, group="consumed", moment="middle")
        await eventually(lambda: ledger.read("middle", task=of_consumer.id), within_s=WITHIN_S)
        again = await k.queue("consumed").pop(wait_s=WITHIN_S)
        assert again is not None
        assert (again.id, again.attempt) == (of_consumer.id, 2)
        await again.done()

    async with connect(settings) as k, k.queue("popped").consumer() as consumer:
        victim = start("pop_and_keep", settings, group="popped")
        await eventually(lambda: ledger.read("popped", task=of_pop.id), within_s=WITHIN_S)
        victim.kill()
        (delivery,) = await consumer.take(wait_s=WITHIN_S)
        assert (delivery.id, delivery.attempt) == (of_pop.id, 2)
        await consumer.finish(delivery)


async def buried(k: Kizuna, number: int) -> bool:
    return len([process for process in await k.processes.zombies() if process.given_back_at]) == number


async def waits(queue: Any, id_: str) -> bool:
    return bool((await queue.status(id_)).state == "waiting")


async def test_with_default_settings_a_killed_workers_task_runs_elsewhere_within_five_seconds(
    settings: Settings, start: Start, ledger: Ledger
) -> None:
    async with connect(settings) as k:
        task = await k.queue("images").push(None)
        victim = start("work", settings, group="images", slow_s=600)
        await eventually(lambda: ledger.read("ran", task=task.id), within_s=WITHIN_S)
        worker, given = answering(k, "images")
        async with running(worker):
            # Its heartbeat is as fresh as it gets, so that this is the longest that it can take.
            await eventually(lambda: heard_just_now(k, victim.pid), within_s=WITHIN_S, every_s=0.005)
            victim.kill()
            killed_at = time.monotonic()
            await eventually(lambda: given, within_s=WITHIN_S)
            took_s = time.monotonic() - killed_at

    assert took_s < ELSEWHERE_WITHIN_S
    assert [(status.failures, status.crashes) for status in given] == [(0, 1)]


async def heard_just_now(k: Kizuna, pid: int) -> bool:
    return any(process.pid == pid and (process.silent_s or 1) < 0.1 for process in await k.processes.active())


async def test_a_consumer_that_was_stopped_past_its_lease_is_refused_and_told(
    settings: Settings, start: Start, ledger: Ledger, tmp_path: Path
) -> None:
    settings = quick(settings)
    go = tmp_path / "go"
    async with connect(settings) as k:
        task = await k.queue("images").push(None)
        stopped = start("finish_when_told", settings, group="images", go=str(go))
        await eventually(lambda: ledger.read("taken"), within_s=WITHIN_S)
        os.kill(stopped.pid, signal.SIGSTOP)

        worker, given = answering(k, "images")
        async with running(worker):
            assert await task.result(timeout_s=WITHIN_S) == ALIVE
            go.touch()
            os.kill(stopped.pid, signal.SIGCONT)
            (refused,) = await eventually(lambda: ledger.read("refused"), within_s=WITHIN_S)

        assert await task.result(timeout_s=WITHIN_S) == ALIVE
    assert "is no longer ours" in refused["error"]
    assert len(given) == 1
    assert ledger.read("accepted") == []
    await asyncio.to_thread(stopped.wait, WITHIN_S)


async def test_a_worker_told_by_sigterm_hands_back_what_it_cannot_end(
    settings: Settings, start: Start, ledger: Ledger
) -> None:
    async with connect(settings) as k:
        queue = k.queue("images")
        task = await queue.push(None)
        process = start("work", settings, group="images", slow_s=600, stop_timeout_s=0.2)
        await eventually(lambda: ledger.read("ran", task=task.id), within_s=WITHIN_S)

        process.terminate()

        await eventually(lambda: waits(queue, task.id), within_s=WITHIN_S)
        assert await asyncio.to_thread(process.wait, WITHIN_S) == 0
        status = await queue.status(task.id)
    assert (status.failures, status.crashes) == (0, 0)
