"""taskiq: Redis streams, Redis results, one worker process with the default of 100 tasks at the same time.

Waiting for a result is looking again and again. It does so each 5 ms here: with the default of 0.2 s, that would be
all that is measured.
"""

from __future__ import annotations

import sys
from typing import Any

from taskiq.__main__ import main
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from benchmarks.peer_roles import URL
from benchmarks.queue_peers.roles import PAYLOAD, RESULT_WITHIN_S, map_with_callers, with_callers

LOOK_EVERY_S = 0.005

broker = RedisStreamBroker(url=URL).with_result_backend(RedisAsyncResultBackend(redis_url=URL, result_ex_time=3600))


@broker.task(task_name="noop")
async def noop(payload: str) -> int:
    return 1


class Producer:
    def push_one(self) -> Any:
        return noop.kiq(PAYLOAD)

    def push_together(self, tasks: int) -> Any:
        return with_callers(tasks, self.push_one)

    async def run_together(self, tasks: int) -> None:
        await map_with_callers(await self.push_together(tasks), self._wait)

    async def run_one(self) -> None:
        await self._wait(await self.push_one())

    async def _wait(self, task: Any) -> None:
        await task.wait_result(check_interval=LOOK_EVERY_S, timeout=RESULT_WITHIN_S)


async def connect() -> Producer:
    await broker.startup()
    return Producer()


def work() -> None:
    module = "benchmarks.queue_peers.taskiq"
    sys.argv = ["taskiq", "worker", f"{module}:broker", "--workers", "1", "--log-level", "WARNING"]
    main()
