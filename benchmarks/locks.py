"""Taking a lock and giving it back: alone, and with many who want the same one. Against redis-py's Lock."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from benchmarks.loops import Loop, run_on
from benchmarks.measuring import Contender, Figure, compare
from benchmarks.peers import redis_py
from benchmarks.reporting import Goal, Report, shown_ratio
from kizuna import connect
from kizuna.app import Kizuna
from kizuna.testing.servers import ServerProcess

ROUNDS = 5
ROUND_S = 0.3
CALLERS = 50
LEASE_S = 10.0
CONTENDED = "benchmark:one-for-all"

OURS, PEER = "kizuna, locks.hold", "redis-py, Lock"
OURS_MANY, PEER_MANY = f"{OURS}, {CALLERS} tasks, a lock each", f"{PEER}, {CALLERS} tasks, a lock each"
OURS_CONTENDED, PEER_CONTENDED = f"{OURS}, {CALLERS} tasks, one lock", f"{PEER}, {CALLERS} tasks, one lock"


def measure(report: Report, server: ServerProcess, loops: tuple[Loop, ...]) -> None:
    for loop in loops:
        report.title(f"Locks, on {loop}: take it and give it back")
        _show(report, run_on(loop, _measure(server)), loop)


async def _measure(server: ServerProcess) -> dict[str, Figure]:
    async with connect(server.url) as k, redis_py(server.url, CALLERS) as plain:
        return await compare(_contenders(k, plain), rounds=ROUNDS, seconds=ROUND_S)


def _contenders(k: Kizuna, plain: Redis) -> dict[str, Contender]:
    async def ours(name: str) -> None:
        async with k.locks.hold(name, lease_s=LEASE_S, wait_s=None):
            pass

    async def peer(name: str) -> None:
        async with plain.lock(name, timeout=LEASE_S):
            pass

    def contended(operation: Any) -> Any:
        return lambda _: operation(CONTENDED)

    return {
        OURS: Contender(ours),
        PEER: Contender(peer),
        OURS_MANY: Contender(ours, callers=CALLERS),
        PEER_MANY: Contender(peer, callers=CALLERS),
        OURS_CONTENDED: Contender(contended(ours), callers=CALLERS),
        PEER_CONTENDED: Contender(contended(peer), callers=CALLERS),
    }


def _show(report: Report, measured: dict[str, Figure], loop: Loop) -> None:
    slowest = measured[PEER].per_second
    for name, figure in measured.items():
        report.figure(
            "locks", loop=loop, client=name,
            per_second=figure.per_second, cpu_us=figure.cpu_us, p50_us=figure.p50_us, p99_us=figure.p99_us,
        )  # fmt: skip
    report.table(
        ["one caller, unless said otherwise", "a second", f"{PEER} is 1", "CPU µs", "p50 µs", "p99 µs"],
        [
            [name, figure.per_second, shown_ratio(figure.per_second / slowest), figure.cpu_us,
             *([figure.p50_us, figure.p99_us] if figure.p50_us else [])]
            for name, figure in measured.items()
        ],
    )  # fmt: skip
    for subject, one, other in (
        ("alone", OURS, PEER),
        (f"{CALLERS} tasks, a lock each", OURS_MANY, PEER_MANY),
        (f"{CALLERS} tasks, one lock", OURS_CONTENDED, PEER_CONTENDED),
    ):
        ratio = measured[one].per_second / measured[other].per_second
        report.goals(f"lock and unlock, {subject}, {loop}", [Goal(PEER, ratio, 3)])
