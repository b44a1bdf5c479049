"""What a task costs when many others wait: pushing it, and taking and finishing it, at backlogs of different length.

Each backlog waits on a server of its own, and the servers take turns, so that a slow second hits all of them. Cost is
CPU time of this process and of the server together: it does not depend on who else uses the machine's cores.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median

from benchmarks.loops import Loop, run_on
from benchmarks.measuring import without_leftovers
from benchmarks.reporting import Goal, Report
from benchmarks.servers import embedded_server, main_thread_s, memory_of
from kizuna import connect
from kizuna.codecs import RAW
from kizuna.coordination.queues import Queue
from kizuna.testing.servers import ServerProcess

BACKLOGS = (1_000, 10_000, 100_000, 1_000_000)
ROUNDS = 9
MEASURED = 2_000
BATCH = 100
FILLED_AT_ONCE = 10_000
PAYLOAD = b"p" * 100
AS_FAST_AS = 1 / 1.2
"""Within 20 % of the cost with the shortest backlog."""


@dataclass
class Backlog:
    tasks: int
    server: ServerProcess
    queue: Queue
    bytes_waiting: float = 0.0
    push_us: list[float] = field(default_factory=list)
    work_us: list[float] = field(default_factory=list)

    @property
    def whole_us(self) -> float:
        return median(self.push_us) + median(self.work_us)


def measure(report: Report, loop: Loop) -> None:
    report.title(f"Queues, on {loop}: what a task costs when many others wait")
    run_on(loop, _measure(report))


async def _measure(report: Report) -> None:
    async with AsyncExitStack() as stack:
        backlogs = [await stack.enter_async_context(_backlog(tasks)) for tasks in BACKLOGS]
        with without_leftovers():
            for _ in range(ROUNDS):
                for backlog in backlogs:
                    backlog.push_us.append(await _cpu_us(backlog, _push))
                    backlog.work_us.append(await _cpu_us(backlog, _work))
    _show(report, backlogs)


@asynccontextmanager
async def _backlog(tasks: int) -> AsyncIterator[Backlog]:
    with embedded_server() as server:
        async with connect(server.url) as k:
            backlog = Backlog(tasks, server, k.queue("benchmark", codec=RAW))
            before = memory_of(server)
            for done in range(0, tasks, FILLED_AT_ONCE):
                await backlog.queue.push_many([PAYLOAD] * min(FILLED_AT_ONCE, tasks - done))
            backlog.bytes_waiting = (memory_of(server) - before) / tasks
            await _until_settled(server)
            yield backlog


async def _until_settled(server: ServerProcess) -> None:
    """A server that writes its log anew, as it does now and then while it grows, is busy with that."""
    while server.info("persistence")["aof_rewrite_in_progress"] == "1":  # noqa: ASYNC110 - another process's state
        await asyncio.sleep(0.1)


async def _cpu_us(backlog: Backlog, operation: Callable[[Queue], Awaitable[None]]) -> float:
    """For each task."""
    began_s = time.process_time() + main_thread_s(backlog.server)
    await operation(backlog.queue)
    return (time.process_time() + main_thread_s(backlog.server) - began_s) / MEASURED * 1e6


async def _push(queue: Queue) -> None:
    for _ in range(0, MEASURED, BATCH):
        await queue.push_many([PAYLOAD] * BATCH)


async def _work(queue: Queue) -> None:
    done = 0
    async with queue.consumer() as consumer:
        while done < MEASURED:
            deliveries = await consumer.take(min(BATCH, MEASURED - done))
            await asyncio.gather(*(consumer.finish(delivery, b"") for delivery in deliveries))
            done += len(deliveries)


def _show(report: Report, backlogs: Sequence[Backlog]) -> None:
    for backlog in backlogs:
        report.figure(
            "queue growth",
            backlog=backlog.tasks,
            push_us=median(backlog.push_us),
            work_us=median(backlog.work_us),
            bytes_waiting=backlog.bytes_waiting,
        )
    report.table(
        ["tasks waiting", "CPU µs: push", "take and finish", "together", "bytes of a waiting task"],
        [
            [f"{each.tasks:,}", median(each.push_us), median(each.work_us), each.whole_us, each.bytes_waiting]
            for each in backlogs
        ],
    )
    shortest = backlogs[0]
    for longer in backlogs[1:]:
        ratio = shortest.whole_us / longer.whole_us
        goal = Goal(f"as cheap as with {shortest.tasks:,}", ratio, round(AS_FAST_AS, 2))
        report.goals(f"a task with {longer.tasks:,} waiting", [goal])
