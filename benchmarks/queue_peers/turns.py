"""One turn of one peer: it has the machine to itself for some seconds, and everything about it is measured once.

start worker and producer · warm up · end to end · latency · end the worker · push one by one · push together
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from operator import sub
from pathlib import Path
from typing import NamedTuple

from benchmarks.peer_processes import PeerProcess, cpu_s_of
from benchmarks.queue_peers.entries import Entry
from benchmarks.servers import memory_of
from kizuna.testing.servers import HOST, ServerProcess, free_port

WARM_UP = 20
SETTLED_AFTER_S = 1.0
"""A worker that has just started looks around first: one of the peers takes a task that comes then for a lost one."""


class Shares(NamedTuple):
    """Of producer, worker and server."""

    producer: float
    worker: float
    server: float


@dataclass(frozen=True)
class Turn:
    """Tasks a second, ms of latency, µs of CPU a task, bytes of the server's memory a waiting task."""

    pushed_each: float
    pushed_together: float
    run: float
    latencies_ms: list[float]
    cpu_us: Shares
    bytes_waiting: float


@dataclass(frozen=True)
class _Team:
    producer: PeerProcess
    worker: PeerProcess
    server_cpu_s: Callable[[], float]

    def cpu_s(self) -> Shares:
        return Shares(self.producer.cpu_s(), self.worker.cpu_s(), self.server_cpu_s())

    def per_second(self, order: str, tasks: int) -> float:
        return float(tasks / self.producer.order(order, tasks=tasks)["seconds"])


def take_turn(entry: Entry, server: ServerProcess, url: str, folder: Path) -> Turn:
    """`url` is a database of the server that nobody else uses. Raises `PeerFailed`."""
    with _team(entry, server, url, folder) as team:
        time.sleep(SETTLED_AFTER_S)
        team.per_second("run_each", 1)
        team.per_second("run_together", WARM_UP)

        before_s = team.cpu_s()
        run = team.per_second("run_together", entry.run)
        spent_s = map(sub, team.cpu_s(), before_s)
        cpu_us = Shares(*(seconds * 1e6 / entry.run for seconds in spent_s))
        latencies_ms = team.producer.order("run_each", tasks=entry.latencies)["latencies_ms"]

        team.worker.end()
        empty = memory_of(server)
        pushed_each = team.per_second("push_each", entry.pushed)
        pushed_together = team.per_second("push_together", entry.bulk)
        bytes_waiting = (memory_of(server) - empty) / (entry.pushed + entry.bulk)
    return Turn(pushed_each, pushed_together, run, latencies_ms, cpu_us, bytes_waiting)


@contextmanager
def _team(entry: Entry, server: ServerProcess, url: str, folder: Path) -> Iterator[_Team]:
    with ExitStack() as stack:

        def start(role: str) -> PeerProcess:
            process = PeerProcess("benchmarks.queue_peers", entry.peer, role, url=url, folder=folder, loop=entry.loop)
            return stack.enter_context(process)

        if entry.has_own_server:
            url = f"nats://{HOST}:{free_port()}"
            server_cpu_s = start("server").cpu_s
        else:
            server_cpu_s = partial(cpu_s_of, server.pid)
        yield _Team(worker=start("worker"), producer=start("producer"), server_cpu_s=server_cpu_s)
