"""Memory: what an item costs to create, read, change, list and delete, one by one and a hundred at a time, with 1 and
with 64 callers. All remember the same: 330 bytes of content, 60 of metadata, fifty items in a context.

The processes of all peers are up all the time, and take turns: each operation is done by one after the other, for a
part of a second, then the next operation. What was made in a round is gone after it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from benchmarks.loops import Loop
from benchmarks.memory_peers.entries import OURS, PLAIN, REDIS_OM, Entry, Server, entries
from benchmarks.memory_peers.payload import BATCH
from benchmarks.peer_processes import PeerFailed, PeerProcess
from benchmarks.reporting import Cell, Goal, Report, shown_ratio
from benchmarks.servers import embedded_server, main_thread_s
from kizuna.testing.servers import ServerProcess

ONE_BY_ONE = ("create", "get", "update", "list", "delete")
TOGETHER = ("create_many", "get_many", "delete_many")
CALLERS = (1, 64)
ROUNDS = 5
ROUND_S = 0.2
WARM_UP_S = 0.05
TIMES_PLAIN_ALONE = 1.5
TIMES_PLAIN = 4
"""With many callers, and in batches."""
MODULE = "benchmarks.memory_peers"
NOT_OFFERED = "none"
TITLES = {
    "list": "list of 50",
    "create_many": f"create {BATCH}, items",
    "get_many": f"get {BATCH}, items",
    "delete_many": f"delete {BATCH}, items",
}


@dataclass(frozen=True)
class Round:
    done: int
    seconds: float
    cpu_s: float
    server_s: float
    p50_us: float
    p99_us: float

    @property
    def per_second(self) -> float:
        return self.done / self.seconds


@dataclass(frozen=True)
class Figure:
    """What came of the rounds of one operation; of one with a hundred items, for each of them."""

    rounds: Sequence[Round]
    items: int = 1

    @property
    def rates(self) -> list[float]:
        return [each.per_second * self.items for each in self.rounds]

    @property
    def per_second(self) -> float:
        return median(self.rates)

    @property
    def client_us(self) -> float:
        return self._us(lambda each: each.cpu_s)

    @property
    def server_us(self) -> float:
        return self._us(lambda each: each.server_s)

    @property
    def p50_us(self) -> float:
        return median(each.p50_us for each in self.rounds)

    @property
    def p99_us(self) -> float:
        return median(each.p99_us for each in self.rounds)

    def _us(self, seconds: Callable[[Round], float]) -> float:
        return median(seconds(each) / each.done for each in self.rounds) / self.items * 1e6


@dataclass
class Record:
    """What came of one entry, by the operation and the number of callers, and why there is no more of it."""

    entry: Entry
    server: ServerProcess | None
    process: PeerProcess | None = None
    rounds: dict[tuple[str, int], list[Round]] = field(default_factory=dict)
    failure: str = ""

    def figure(self, operation: str, callers: int) -> Figure | None:
        rounds = self.rounds.get((operation, callers))
        return Figure(rounds, BATCH if operation in TOGETHER else 1) if rounds else None


def measure(report: Report, loops: Sequence[Loop], only: Sequence[str] = ()) -> None:
    report.title("Memory: items of 330 bytes, fifty in a context")
    with tempfile.TemporaryDirectory(prefix="kizuna-memory-") as folder, ExitStack() as stack:
        records = _start(entries(loops, only), Path(folder), stack)
        for number in range(ROUNDS):
            # Who is first has the machine as the one before left it; so nobody is always first.
            in_turn = records if number % 2 == 0 else records[::-1]
            for callers in CALLERS:
                _take_turns(in_turn, callers, ROUND_S)
    for loop in loops:
        for callers in CALLERS:
            _show(report, [record for record in records if record.entry.is_shown_on(loop)], loop, callers)
    _say_what_failed(report, records)


def _start(contenders: Sequence[Entry], folder: Path, stack: ExitStack) -> list[Record]:
    servers: dict[Server, ServerProcess | None] = {
        "plain": stack.enter_context(ServerProcess()),
        "append-only": stack.enter_context(embedded_server()),
        "none": None,
    }
    records = [Record(entry, servers[entry.server]) for entry in contenders]
    for database, record in enumerate(records):
        _try(record, partial(_begin, database=database, folder=folder, stack=stack))
    for callers in CALLERS:
        _take_turns(records, callers, WARM_UP_S)
    for record in records:
        record.rounds.clear()
    return records


def _begin(record: Record, database: int, folder: Path, stack: ExitStack) -> None:
    entry = record.entry
    if not entry.can_take_part:
        raise PeerFailed("not installed; `make bench` does it")
    url = f"redis://{record.server.address}/{database}" if record.server else ""
    process = PeerProcess(
        MODULE, entry.peer, "subject", url=url, folder=folder, loop=entry.loop, packages=entry.packages
    )  # fmt: skip
    record.process = stack.enter_context(process)
    record.process.order("check")


def _take_turns(records: Sequence[Record], callers: int, seconds: float) -> None:
    for operations in (ONE_BY_ONE, TOGETHER):
        for operation in operations:
            for record in records:
                _try(record, partial(_perform, operation=operation, callers=callers, seconds=seconds))
        for record in records:
            _try(record, _clear)


def _perform(record: Record, operation: str, callers: int, seconds: float) -> None:
    if record.process is None:
        return
    before_s = main_thread_s(record.server) if record.server else 0.0
    facts = record.process.order("perform", operation=operation, callers=callers, seconds=seconds)
    server_s = main_thread_s(record.server) - before_s if record.server else 0.0
    if facts:
        record.rounds.setdefault((operation, callers), []).append(Round(**facts, server_s=server_s))


def _clear(record: Record) -> None:
    if record.process is not None:
        record.process.order("clear")


def _try(record: Record, step: Callable[[Record], None]) -> None:
    try:
        step(record)
    except PeerFailed as failure:
        record.failure, record.process = str(failure), None


def _show(report: Report, records: Sequence[Record], loop: Loop, callers: int) -> None:
    usual = [record for record in records if record.entry.server != "append-only"]
    _show_rates(report, usual, loop, callers)
    _show_costs(report, usual, loop, callers)
    _show_goals(report, usual, loop, callers)
    report.note("")
    if append_only := [record for record in records if record.entry.server == "append-only"]:
        _show_rates(report, append_only, loop, callers)


def _show_rates(report: Report, records: Sequence[Record], loop: Loop, callers: int) -> None:
    """A second, and how many times as many ours is: from round to round, the median and the middle half."""
    ours, *others = records
    headers = [f"a second, {_counted(callers)}, on {loop}", ours.entry.name]
    headers += [header for other in others for header in (other.entry.name, "ours is", "mostly")]
    rows: list[list[Cell]] = []
    for operation in (*ONE_BY_ONE, *TOGETHER):
        figure = ours.figure(operation, callers)
        row: list[Cell] = [TITLES.get(operation, operation), figure.per_second if figure else ""]
        for other in others:
            row += _compared(figure, other.figure(operation, callers))
        rows.append(row)
        for record in records:
            _keep_figure(report, record, operation, callers)
    report.table(headers, rows)


def _compared(ours: Figure | None, theirs: Figure | None) -> list[Cell]:
    if theirs is None:
        return [NOT_OFFERED, "", ""]
    if ours is None:
        return [theirs.per_second, "", ""]
    ratios = _ratios(ours, theirs)
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return [theirs.per_second, shown_ratio(median(ratios)), f"{low:.2f} to {high:.2f}"]


def _ratios(ours: Figure, theirs: Figure) -> list[float]:
    """Of rounds next to each other."""
    return [mine / other for mine, other in zip(ours.rates, theirs.rates, strict=False)]


def _show_costs(report: Report, records: Sequence[Record], loop: Loop, callers: int) -> None:
    headers = [f"CPU µs of client + server, p50 of an operation in µs; {_counted(callers)}, on {loop}"]
    rows: list[list[Cell]] = [[TITLES.get(operation, operation)] for operation in (*ONE_BY_ONE, *TOGETHER)]
    for record in records:
        headers += [record.entry.name, "p50"]
        for row, operation in zip(rows, (*ONE_BY_ONE, *TOGETHER), strict=True):
            row += _costs(record.figure(operation, callers), has_server=record.server is not None)
    report.table(headers, rows)


def _costs(figure: Figure | None, *, has_server: bool) -> list[Cell]:
    if figure is None:
        return [NOT_OFFERED, ""]
    client, server = f"{figure.client_us:.1f}", f" + {figure.server_us:.1f}" if has_server else ""
    return [client + server, figure.p50_us]


def _keep_figure(report: Report, record: Record, operation: str, callers: int) -> None:
    figure, entry = record.figure(operation, callers), record.entry
    if figure:
        report.figure(
            "memory", peer=entry.name, loop=entry.loop, operation=operation, callers=callers,
            per_second=figure.per_second, rates=figure.rates, p50_us=figure.p50_us, p99_us=figure.p99_us,
            client_us=figure.client_us, server_us=figure.server_us,
        )  # fmt: skip


def _show_goals(report: Report, records: Sequence[Record], loop: Loop, callers: int) -> None:
    ours, plain = _of(records, OURS), _of(records, PLAIN)
    if plain is None:
        return
    for operation in (*ONE_BY_ONE, *TOGETHER):
        subject = f"{TITLES.get(operation, operation)}, {_counted(callers)}, {loop}"
        mine = ours and ours.figure(operation, callers)
        theirs = plain.figure(operation, callers)
        if not mine or not theirs:
            report.unmeasured(subject, "it failed, see below")
            continue
        promised = TIMES_PLAIN_ALONE if callers == 1 and operation in ONE_BY_ONE else TIMES_PLAIN
        report.goals(subject, [Goal(plain.entry.title, median(_ratios(mine, theirs)), promised)])


def _of(records: Sequence[Record], peer: str) -> Record | None:
    return next((record for record in records if record.entry.peer == peer), None)


def _say_what_failed(report: Report, records: Sequence[Record]) -> None:
    for record in records:
        if record.failure:
            report.note(f"{record.entry.name}, {record.entry.loop}: {record.failure}")
    if _of(records, REDIS_OM):
        report.note("redis-om lists and indexes by the Search module, which the server does not have")


def _counted(callers: int) -> str:
    return "1 caller" if callers == 1 else f"{callers:,} callers"
