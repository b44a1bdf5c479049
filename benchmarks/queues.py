"""Task queues: one producer process, one worker process, tasks of 100 bytes that do nothing, results waited for.

All on one server with the options of the embedded one; JetStream on its own, with its stream in a file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from benchmarks.loops import Loop
from benchmarks.peer_processes import PeerFailed
from benchmarks.queue_peers.entries import JETSTREAM, OURS, Entry, can_take_part, entries
from benchmarks.queue_peers.turns import Turn, take_turn
from benchmarks.reporting import Cell, Goal, Report, shown_ratio
from benchmarks.servers import embedded_server
from kizuna.testing.servers import ServerProcess

ROUNDS = 3
TURNS_MAY_FAIL = 2
TIMES_THE_BEST_PYTHON_QUEUE = 10
TIMES_JETSTREAM = 1


@dataclass
class Record:
    """The turns of one entry, and why it has fewer than others."""

    turns: list[Turn] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def median(self, figure: Callable[[Turn], float]) -> float:
        return median(map(figure, self.turns))

    @property
    def run(self) -> float:
        return self.median(lambda turn: turn.run)

    def latency_ms(self, percent: int) -> float:
        return quantiles((ms for turn in self.turns for ms in turn.latencies_ms), n=100)[percent - 1]


Records = dict[Entry, Record]


def measure(report: Report, loops: Sequence[Loop], only: Sequence[str] = ()) -> None:
    report.title("Queues: tasks of 100 bytes that do nothing, one producer and one worker process")
    with embedded_server() as server, tempfile.TemporaryDirectory(prefix="kizuna-queues-") as folder:
        records = _take_turns(server, entries(loops, only), Path(folder))
    for loop in loops:
        _show(report, records, loop)
        _show_goals(report, records, loop)


def _take_turns(server: ServerProcess, contenders: Sequence[Entry], folder: Path) -> Records:
    records: Records = {entry: Record() for entry in contenders}
    for _ in range(ROUNDS):
        for database, (entry, record) in enumerate(records.items()):
            if len(record.failures) < TURNS_MAY_FAIL:
                _add_turn(record, entry, server, f"redis://{server.address}/{database}", folder)
    return records


def _add_turn(record: Record, entry: Entry, server: ServerProcess, url: str, folder: Path) -> None:
    if not can_take_part(entry):
        record.failures = ["not installed; `make bench` does it"] * TURNS_MAY_FAIL
        return
    try:
        record.turns.append(take_turn(entry, server, url, folder))
    except PeerFailed as failure:
        record.failures.append(str(failure))
    finally:
        # At once, and not while the next one is measured.
        server.call("FLUSHALL", "SYNC", timeout_s=60)


def _show(report: Report, records: Records, loop: Loop) -> None:
    shown = {
        entry: record for entry, record in records.items() if entry.peer not in (OURS, JETSTREAM) or entry.loop == loop
    }
    ours = next(record for entry, record in shown.items() if entry.peer == OURS)
    report.table(
        [f"ours on {loop}", "push one by one", "push together", "end to end", "ours is", "p50 ms", "p99 ms",
         "CPU µs: producer", "worker", "server", "bytes waiting"],
        [_row(report, entry, record, ours) for entry, record in shown.items() if record.turns],
    )  # fmt: skip
    for entry, record in shown.items():
        if record.failures:
            measured = f"{len(record.turns)} of {ROUNDS} turns" if record.turns else "not"
            report.note(f"{entry.name}: {measured} measured: {record.failures[-1]}")


def _row(report: Report, entry: Entry, record: Record, ours: Record) -> list[Cell]:
    figures = {
        "pushed_each": record.median(lambda turn: turn.pushed_each),
        "pushed_together": record.median(lambda turn: turn.pushed_together),
        "run": record.run,
        "p50_ms": record.latency_ms(50),
        "p99_ms": record.latency_ms(99),
        "producer_us": record.median(lambda turn: turn.cpu_us.producer),
        "worker_us": record.median(lambda turn: turn.cpu_us.worker),
        "server_us": record.median(lambda turn: turn.cpu_us.server),
        "bytes_waiting": record.median(lambda turn: turn.bytes_waiting),
    }
    report.figure("queues", queue=entry.name, loop=entry.loop, **figures)
    row: list[Cell] = [entry.name, *figures.values()]
    row.insert(4, shown_ratio(ours.run / record.run) if ours.turns else "")
    if entry.has_own_server:
        row[-1] = "in a file"
    return row


def _show_goals(report: Report, records: Records, loop: Loop) -> None:
    """Against those that were measured; a missing one is said above."""
    rates = {entry: record.run for entry, record in records.items() if record.turns}
    ours = next((rate for entry, rate in rates.items() if entry.peer == OURS and entry.loop == loop), 0.0)
    jetstream = [rate for entry, rate in rates.items() if entry.peer == JETSTREAM and entry.loop == loop]
    others = {entry.title: rate for entry, rate in rates.items() if entry.peer not in (OURS, JETSTREAM)}
    goals = [Goal("JetStream", ours / rate, TIMES_JETSTREAM) for rate in jetstream]
    if others:
        best = max(others, key=others.__getitem__)
        goals.append(Goal(f"{best}, the best of the Python queues", ours / others[best], TIMES_THE_BEST_PYTHON_QUEUE))
    if goals:
        report.goals(f"end to end, {loop}", goals)
