"""SAQ: Redis queue, one worker with the default of 10 tasks at the same time.

A waiter looks again and again: each 50 ms for many tasks and each 5 ms for one here, since with the default of 0.5 s
that would be most of what is measured.
"""

from __future__ import annotations

from typing import Any

from saq import Queue
from saq.runner import run

from benchmarks.peer_roles import URL
from benchmarks.queue_peers.roles import PAYLOAD, RESULT_WITHIN_S, with_callers

LOOK_EVERY_S = 0.05
LOOK_FOR_ONE_EVERY_S = 0.005

queue = Queue.from_url(URL)


async def noop(context: Any, *, payload: str) -> int:
    return 1


settings = {"queue": queue, "functions": [noop]}


class Producer:
    def push_one(self) -> Any:
        return queue.enqueue("noop", payload=PAYLOAD)

    def push_together(self, tasks: int) -> Any:
        return with_callers(tasks, self.push_one)

    def run_together(self, tasks: int) -> Any:
        return queue.map("noop", [{"payload": PAYLOAD}] * tasks, poll_interval=LOOK_EVERY_S)

    def run_one(self) -> Any:
        return queue.apply("noop", payload=PAYLOAD, timeout=RESULT_WITHIN_S, poll_interval=LOOK_FOR_ONE_EVERY_S)


async def connect() -> Producer:
    await queue.connect()
    return Producer()


def work() -> None:
    run("benchmarks.queue_peers.saq.settings")
