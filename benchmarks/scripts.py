"""A script called with 1, 100 and 1,000 rows, and by callers who each bring one row and know of no others."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from benchmarks.loops import Loop, run_on
from benchmarks.measuring import Contender, Figure, Round, run_round, summary, warm_up, without_leftovers
from benchmarks.peers import redis_py
from benchmarks.reporting import Report, shown_ratio
from kizuna import connect
from kizuna.store.client import Store
from kizuna.store.scripts import Script
from kizuna.testing.servers import ServerProcess

ROUNDS = 5
ROUND_S = 0.2
CALLERS = 1_000
REDIS_PY_CALLERS = 50
DUE = "benchmark:due"
KEEP_MS = 60_000
PAYLOAD = b"p" * 100

push_jobs = Script.load("benchmarks", "push_jobs")

REDIS_PY = f"redis-py script, 1 row a call, {REDIS_PY_CALLERS} callers"
BATCHED = f"kizuna row(), {CALLERS:,} callers"


def measure(report: Report, server: ServerProcess, loops: tuple[Loop, ...]) -> None:
    for loop in loops:
        report.title(f"Scripts, on {loop}: SET with an expiry and ZADD for each row")
        _show(report, run_on(loop, _measure(server)), loop)


async def _measure(server: ServerProcess) -> dict[str, tuple[Figure, float]]:
    async with connect(server.url) as k, redis_py(server.url, REDIS_PY_CALLERS) as plain:
        contenders = _contenders(k.store, plain)
        for contender in contenders.values():
            await warm_up(contender)
        done: dict[str, list[Round]] = {name: [] for name in contenders}
        server_us = dict.fromkeys(contenders, 0.0)
        with without_leftovers():
            for _ in range(ROUNDS):
                for name, contender in contenders.items():
                    before_us = _script_us(server)
                    done[name].append(await run_round(contender, ROUND_S))
                    server_us[name] += _script_us(server) - before_us
    return {
        name: (summary(rounds), server_us[name] / sum(each.commands for each in rounds))
        for name, rounds in done.items()
    }


def _contenders(store: Store, plain: Redis) -> dict[str, Contender]:
    registered = plain.register_script(push_jobs.source)

    def by_redis_py(key: str) -> Any:
        return registered(keys=[DUE, key], args=[KEEP_MS, key, 1, PAYLOAD])

    def one_row(key: str) -> Any:
        return push_jobs.row(store, due=DUE, keep_ms=KEEP_MS, **_row(key))

    def in_one_call(number: int) -> Contender:
        rows = [_row(f"benchmark:{place}") for place in range(number)]
        return Contender(lambda _: push_jobs.rows(store, rows, due=DUE, keep_ms=KEEP_MS), commands=number)

    return {
        "kizuna rows(), 1 row a call": in_one_call(1),
        "kizuna rows(), 100 rows a call": in_one_call(100),
        "kizuna rows(), 1,000 rows a call": in_one_call(1_000),
        BATCHED: Contender(one_row, callers=CALLERS),
        REDIS_PY: Contender(by_redis_py, callers=REDIS_PY_CALLERS),
    }


def _row(key: str) -> dict[str, Any]:
    return {"job": key, "name": key, "due_ms": 1, "payload": PAYLOAD}


def _script_us(server: ServerProcess) -> float:
    """What the server has spent in scripts so far, by its own count."""
    stats = server.info("commandstats")
    calls = [stats[name] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats]
    return sum(float(dict(fact.split("=") for fact in call.split(","))["usec"]) for call in calls)


def _show(report: Report, measured: dict[str, tuple[Figure, float]], loop: Loop) -> None:
    slowest = measured[REDIS_PY][0].per_second
    for name, (figure, server_us) in measured.items():
        report.figure(
            "scripts", loop=loop, client=name,
            rows_per_second=figure.per_second, cpu_us=figure.cpu_us, server_us=server_us,
        )  # fmt: skip
    report.table(
        ["one caller, unless said otherwise", "rows a second", "redis-py is 1", "CPU µs a row", "server µs a row"],
        [
            [name, figure.per_second, shown_ratio(figure.per_second / slowest), figure.cpu_us, server_us]
            for name, (figure, server_us) in measured.items()
        ],
    )
