"""Producers and consumers are killed at random; nothing that was acknowledged is lost, and no result kept twice."""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kizuna import Kizuna, Settings, connect
from kizuna.coordination.queues import Queue
from kizuna.coordination.queues.tasks import TaskStatus
from kizuna.service import running
from kizuna.settings import ProcessesSettings, QueuesSettings
from kizuna.testing import eventually
from kizuna.testing.ledger import Ledger

GROUP = "soak"
KILLING_S = 30.0
SETTLED_WITHIN_S = 90.0
FLEET = ("produce", "produce", "consume", "consume", "work")

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The dead are found, and what failed is tried again, within a second or so."""
    processes, queues = ProcessesSettings(heartbeat_every_s=0.3), QueuesSettings(retry_first_s=0.05)
    return msgspec.structs.replace(settings, processes=processes, queues=queues)


@pytest.mark.timeout(KILLING_S + SETTLED_WITHIN_S + 60)
async def test_whoever_is_killed_each_task_is_done_or_given_up_and_each_result_kept_once(
    settings: Settings, start: Start, ledger: Ledger
) -> None:
    seed = random.randrange(10**6)
    async with connect(settings) as k, running(k.processes.membership()):
        queue = k.queue(GROUP)
        fleet = Fleet(start, settings, ledger, seed)
        kills = await fleet.kill_at_random()
        fleet.kill_all("produce")
        await eventually(lambda: nothing_under_way(queue), within_s=SETTLED_WITHIN_S, every_s=0.2)
        await fleet.end()

        await assert_all_ended_once(queue, ledger)
        await eventually(lambda: nothing_held(k), within_s=SETTLED_WITHIN_S)

    # It was worth something: much was done, and by more than one.
    assert kills > len(FLEET), f"{kills=} {seed=}"
    assert len(ledger.read("committed")) > 20, f"{seed=}"
    assert any(run["attempt"] > 1 for run in ledger.read("ran")), f"{seed=}"


class Fleet:
    """Some processes; whenever one was killed, another takes its place."""

    def __init__(self, start: Start, settings: Settings, ledger: Ledger, seed: int) -> None:
        self._start, self._settings, self._ledger, self._dice = start, settings, ledger, random.Random(seed)
        self._processes = [self._begin(program) for program in FLEET]

    async def kill_at_random(self) -> int:
        """For a while; returns how many."""
        ends_at = time.monotonic() + KILLING_S
        return sum(await asyncio.gather(*[self._kill_again(number, ends_at) for number in range(len(FLEET))]))

    async def _kill_again(self, number: int, ends_at: float) -> int:
        kills = 0
        while time.monotonic() < ends_at:
            # Only once it has done something: else a slow machine would see nothing but starts.
            await eventually(lambda: self._has_begun(number), within_s=SETTLED_WITHIN_S, every_s=0.1)
            await asyncio.sleep(self._dice.uniform(0, 4))
            self._kill(number)
            self._processes[number] = self._begin(FLEET[number])
            kills += 1
        return kills

    def kill_all(self, program: str) -> None:
        for number, name in enumerate(FLEET):
            if name == program:
                self._kill(number)

    async def end(self) -> None:
        """Those that are left leave as they should."""
        alive = [number for number, process in enumerate(self._processes) if process.poll() is None]
        await eventually(lambda: all(map(self._has_begun, alive)), within_s=SETTLED_WITHIN_S)
        for number in alive:
            self._processes[number].terminate()
        for number in alive:
            assert await asyncio.to_thread(self._processes[number].wait, SETTLED_WITHIN_S) == 0

    def _has_begun(self, number: int) -> bool:
        return self._ledger.mentions(self._processes[number].pid)

    def _begin(self, program: str) -> subprocess.Popen[bytes]:
        arguments: dict[str, Any] = {} if program == "work" else {"seed": self._dice.randrange(10**6)}
        return self._start(program, self._settings, group=GROUP, **arguments)

    def _kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()


async def nothing_under_way(queue: Queue) -> bool:
    depth = await queue.depth()
    return depth.waiting + depth.delayed + depth.running == 0


async def assert_all_ended_once(queue: Queue, ledger: Ledger) -> None:
    pushed = [task for line in ledger.read("pushed") for task in line["tasks"]]
    statuses = {task: await queue.status(task) for task in pushed}
    assert Counter(status.state for status in statuses.values()).keys() <= {"done", "dead"}

    ran: dict[str, set[str]] = {}
    for line in ledger.read("ran"):
        ran.setdefault(line["task"], set()).add(line["result"])
    committed = [(line["task"], line["result"]) for line in ledger.read("committed")]
    assert max(Counter(task for task, _ in committed).values()) == 1

    results = {task: await queue.result(task) for task, status in statuses.items() if status.state == "done"}
    assert all(results.get(task, result) == result for task, result in committed)
    assert all(result in ran[task] for task, result in results.items())
    assert [status for status in statuses.values() if status.state == "dead" and not given_up_rightly(status)] == []


def given_up_rightly(status: TaskStatus) -> bool:
    return status.reason == "it was told to fail" or status.crashes >= QueuesSettings().crashes


async def nothing_held(k: Kizuna) -> bool:
    """No task is with anybody, and nobody is waited for."""
    found: list[bytes] = []
    cursor = b"0"
    while True:
        cursor, keys = await k.store.call("SCAN", cursor, "MATCH", f"{k.settings.roots.coordination}:queues:*")
        found += [key for key in keys if key.split(b":")[2] in (b"held", b"consumers", b"idle", b"delayed")]
        if cursor == b"0":
            break
    assert found == []
    return True
