"""arq, tuned: worker and waiters look for news each 10 ms instead of each 0.5 s, and 100 tasks run at the same time
instead of 10. With its defaults a task of nothing takes half a second.
"""

from __future__ import annotations

from typing import Any

from arq import create_pool, run_worker
from arq.connections import RedisSettings

from benchmarks.peer_roles import URL
from benchmarks.queue_peers.roles import PAYLOAD, RESULT_WITHIN_S, map_with_callers, with_callers

LOOK_EVERY_S = 0.01
SERVER = RedisSettings.from_dsn(URL)


async def noop(context: Any, payload: str) -> int:
    return 1


class WorkerSettings:
    functions = (noop,)
    redis_settings = SERVER
    poll_delay = LOOK_EVERY_S
    max_jobs = 100


class Producer:
    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def push_one(self) -> Any:
        return self._pool.enqueue_job("noop", PAYLOAD)

    def push_together(self, tasks: int) -> Any:
        return with_callers(tasks, self.push_one)

    async def run_together(self, tasks: int) -> None:
        await map_with_callers(await self.push_together(tasks), self._wait)

    async def run_one(self) -> None:
        await self._wait(await self.push_one())

    async def _wait(self, job: Any) -> None:
        await job.result(timeout=RESULT_WITHIN_S, poll_delay=LOOK_EVERY_S)


async def connect() -> Producer:
    return Producer(await create_pool(SERVER))


def work() -> None:
    run_worker(WorkerSettings)
