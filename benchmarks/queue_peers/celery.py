"""Celery: Redis broker and Redis results, and the solo pool.

With prefork, its default, the tasks would run in a second process and come out slower; here one process does it all.
"""

from __future__ import annotations

from typing import Any

from celery import Celery, group

from benchmarks.peer_roles import URL
from benchmarks.queue_peers.roles import PAYLOAD, RESULT_WITHIN_S

app = Celery("benchmark", broker=URL, backend=URL)


@app.task(name="noop")
def noop(payload: str) -> int:
    return 1


class Producer:
    def push_one(self) -> Any:
        return noop.delay(PAYLOAD)

    def push_together(self, tasks: int) -> Any:
        return group(noop.s(PAYLOAD) for _ in range(tasks))()

    def run_together(self, tasks: int) -> None:
        self.push_together(tasks).get(timeout=RESULT_WITHIN_S)

    def run_one(self) -> None:
        noop.delay(PAYLOAD).get(timeout=RESULT_WITHIN_S)


async def connect() -> Producer:
    return Producer()


def work() -> None:
    app.worker_main(["worker", "--pool=solo", "--loglevel=ERROR", "--without-gossip", "--without-mingle"])
