"""huey: blocking pop and a consumer with one thread, which are its defaults; waiters for results are notified.

Without `notify_result` a waiter looks again after 0.1 s and more, which would be all that is measured.
"""

from __future__ import annotations

import sys
from typing import Any

from huey import RedisHuey
from huey.bin.huey_consumer import consumer_main

from benchmarks.peer_roles import URL
from benchmarks.queue_peers.roles import PAYLOAD, RESULT_WITHIN_S

huey = RedisHuey("benchmark", url=URL, notify_result=True)


@huey.task(name="noop")
def noop(payload: str) -> int:
    return 1


class Producer:
    def push_one(self) -> Any:
        return noop(PAYLOAD)

    def push_together(self, tasks: int) -> Any:
        return noop.map([(PAYLOAD,)] * tasks)

    def run_together(self, tasks: int) -> None:
        noop.map([(PAYLOAD,)] * tasks).get(blocking=True, timeout=RESULT_WITHIN_S)

    def run_one(self) -> None:
        noop(PAYLOAD).get(blocking=True, timeout=RESULT_WITHIN_S)


async def connect() -> Producer:
    return Producer()


def work() -> None:
    sys.argv = ["huey_consumer", "benchmarks.queue_peers.huey.huey", "--quiet"]
    consumer_main()
