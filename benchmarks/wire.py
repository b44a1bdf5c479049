"""SET and GET of 100 bytes: kizuna against redis-py, valkey-glide and redis-py pipelines made by hand."""

from __future__ import annotations

from glide import GlideClient
from redis.asyncio import Redis

from benchmarks.loops import Loop, run_on
from benchmarks.measuring import Contender, Figure, Operation, compare
from benchmarks.peers import bare_round_trip_us, glide, pipeline, redis_py
from benchmarks.reporting import Cell, Goal, Report, shown_ratio
from kizuna import connect
from kizuna.store.client import Store

CALLERS = (1, 64, 1_024)
COMMANDS = ("SET", "GET")
ROUNDS = 7
ROUND_S = 0.15
VALUE = b"v" * 100
PIPELINE = 100

OURS, COALESCED = "kizuna, store.call", "kizuna, store.get"
REDIS_PY, GLIDE, PIPELINES = "redis-py", "valkey-glide", "redis-py pipelines of 100"

# callers, command, client
Row = tuple[int, str, str]


def measure(report: Report, url: str, loops: tuple[Loop, ...]) -> None:
    for loop in loops:
        report.title(f"Wire, on {loop}: {len(VALUE)}-byte values")
        before_us = bare_round_trip_us(url)
        figures = run_on(loop, _measure(url))
        after_us = bare_round_trip_us(url)
        report.note(
            f"a blocking socket without any client, SET: p50 {before_us:.0f} µs before, {after_us:.0f} µs after"
        )
        report.note("")
        for callers in CALLERS:
            for command in COMMANDS:
                of_clients = {row[2]: figure for row, figure in figures.items() if row[:2] == (callers, command)}
                _show(report, of_clients, loop, command, callers)


async def _measure(url: str) -> dict[Row, Figure]:
    most = max(CALLERS)
    async with connect(url) as k, redis_py(url, most) as plain, glide(url, most) as rust:
        contenders = {
            (callers, command, client): contender
            for callers in CALLERS
            for command in COMMANDS
            for client, contender in _contenders(k.store, plain, rust, command, callers).items()
        }
        return await compare(contenders, rounds=ROUNDS, seconds=ROUND_S)


def _contenders(store: Store, plain: Redis, rust: GlideClient, command: str, callers: int) -> dict[str, Contender]:
    ours: Operation
    if command == "SET":
        batch: list[tuple[str | bytes, ...]] = [("SET", key, VALUE) for key in _pipelined_keys()]
        ours, theirs, rusts = (
            lambda key: store.call("SET", key, VALUE),
            lambda key: plain.set(key, VALUE),
            lambda key: rust.set(key, VALUE),
        )
    else:
        batch = [("GET", key) for key in _pipelined_keys()]
        ours, theirs, rusts = lambda key: store.call("GET", key), plain.get, rust.get
    contenders = {
        OURS: Contender(ours, callers=callers),
        REDIS_PY: Contender(theirs, callers=callers),
        GLIDE: Contender(rusts, callers=callers),
        # As many commands under way as the callers would have: that is what people pipeline for.
        PIPELINES: Contender(lambda _: pipeline(plain, batch), commands=PIPELINE, callers=max(1, callers // PIPELINE)),
    }
    if command == "GET":
        contenders[COALESCED] = Contender(store.get, callers=callers)
    return contenders


def _pipelined_keys() -> list[str]:
    return [f"benchmark:{number}" for number in range(PIPELINE)]


def _show(report: Report, figures: dict[str, Figure], loop: Loop, command: str, callers: int) -> None:
    ours = figures[OURS].per_second
    headers = [f"{command}, {_counted(callers)}", "a second", "ours is", "CPU µs each"]
    headers += ["p50 µs", "p99 µs"] if callers == 1 else []
    rows: list[list[Cell]] = []
    for client, figure in figures.items():
        row: list[Cell] = [client, figure.per_second, shown_ratio(ours / figure.per_second), figure.cpu_us]
        facts = {"per_second": figure.per_second, "cpu_us": figure.cpu_us}
        if callers == 1 and client != PIPELINES:
            row += [figure.p50_us, figure.p99_us]
            facts |= {"p50_us": figure.p50_us, "p99_us": figure.p99_us}
        rows.append(row)
        report.figure("wire", loop=loop, command=command, callers=callers, client=client, **facts)
    report.table(headers, rows)
    report.goals(f"{loop}, {_counted(callers)}, {command}", _goals(figures, loop, callers))
    report.note("")


def _goals(figures: dict[str, Figure], loop: Loop, callers: int) -> list[Goal]:
    ours = figures[OURS].per_second
    if callers == 1:
        return [Goal(REDIS_PY, ours / figures[REDIS_PY].per_second, 2 if loop == "uvloop" else 1)]
    return [
        Goal(REDIS_PY, ours / figures[REDIS_PY].per_second, 12),
        Goal(GLIDE, ours / figures[GLIDE].per_second, 3),
    ]


def _counted(callers: int) -> str:
    return "1 caller" if callers == 1 else f"{callers:,} callers"
