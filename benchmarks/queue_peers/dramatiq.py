"""dramatiq: Redis broker, Redis results, one worker process with eight threads, which is its default number."""

from __future__ import annotations

from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.cli import main, make_argument_parser
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from benchmarks.peer_roles import URL
from benchmarks.queue_peers.roles import PAYLOAD, RESULT_WITHIN_S

broker = RedisBroker(url=URL)
broker.add_middleware(Results(backend=RedisBackend(url=URL)))
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="noop", store_results=True)
def noop(payload: str) -> int:
    return 1


class Producer:
    def push_one(self) -> Any:
        return noop.send(PAYLOAD)

    def push_together(self, tasks: int) -> Any:
        return dramatiq.group(noop.message(PAYLOAD) for _ in range(tasks)).run()

    def run_together(self, tasks: int) -> None:
        self.push_together(tasks).wait(timeout=RESULT_WITHIN_S * 1000)

    def run_one(self) -> None:
        noop.send(PAYLOAD).get_result(block=True, timeout=RESULT_WITHIN_S * 1000)


async def connect() -> Producer:
    return Producer()


def work() -> None:
    options = ["benchmarks.queue_peers.dramatiq", "--processes", "1", "--threads", "8"]
    main(make_argument_parser().parse_args(options))
