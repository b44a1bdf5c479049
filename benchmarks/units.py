"""Calls: a requester and a responder in two processes, 100 bytes both ways, with 1, 64 and 1,024 calls in flight.

The pairs of all peers are up all the time, and call in turns: half a second of each, then again. What those who store
something have stored is removed after each turn; that it would else end by itself later is not part of the figures.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.loops import Loop
from benchmarks.peer_processes import PeerFailed
from benchmarks.reporting import Cell, Goal, Report, shown_ratio
from benchmarks.servers import embedded_server
from benchmarks.unit_peers.entries import NATS, OURS, PUBSUB, Entry, entries
from benchmarks.unit_peers.pairs import Pair, Place, Round, Shares, pair_of
from kizuna.testing.servers import ServerProcess

IN_FLIGHT = (1, 64, 1_024)
ROUNDS = 5
ROUND_S = 0.5
WARM_UP_S = 0.1
IDLE_S = 1.0
TIMES_NATS = 1.5
TIMES_PUBSUB = 6


@dataclass
class Record:
    """What came of one entry, by the number of calls in flight, and why there is no more of it."""

    entry: Entry
    place: Place | None
    pair: Pair | None = None
    rounds: dict[int, list[Round]] = field(default_factory=lambda: {in_flight: [] for in_flight in IN_FLIGHT})
    failure: str = ""

    def figure(self, in_flight: int) -> Figure | None:
        rounds = self.rounds[in_flight]
        return Figure(rounds) if any(each.calls for each in rounds) else None


@dataclass(frozen=True)
class Figure:
    rounds: list[Round]

    @property
    def per_second(self) -> float:
        return self._median(lambda each: each.calls / each.seconds)

    @property
    def p50_ms(self) -> float:
        return self._median(lambda each: each.p50_ms)

    @property
    def p99_ms(self) -> float:
        return self._median(lambda each: each.p99_ms)

    @property
    def cpu_us(self) -> Shares:
        """Of all rounds together: one alone is short for a clock that ticks a hundred times a second."""
        calls = sum(each.calls for each in self.rounds)
        of_each_process = zip(*(each.cpu_s for each in self.rounds), strict=True)
        return Shares(*(sum(seconds) * 1e6 / calls for seconds in of_each_process))

    @property
    def failures(self) -> int:
        return sum(each.failures for each in self.rounds)

    def _median(self, fact: Callable[[Round], float]) -> float:
        return median(map(fact, self.rounds))


def measure(report: Report, loops: Sequence[Loop], only: Sequence[str] = ()) -> None:
    report.title("Units: calls between two processes, 100 bytes both ways")
    with tempfile.TemporaryDirectory(prefix="kizuna-units-") as folder, ExitStack() as stack:
        records = [Record(entry, _place(entry, stack)) for entry in entries(loops, only)]
        for record in records:
            _start(record, Path(folder), stack)
        report.note(f"all of them waiting, together: {_idle_percent(records):.1f} % of a core\n")
        for number in range(ROUNDS):
            for in_flight in IN_FLIGHT:
                for record in records:
                    if number < record.entry.rounds_at_most:
                        _call(record, in_flight)
    for loop in loops:
        _show(report, [record for record in records if record.entry.is_shown_on(loop)], loop)


def _place(entry: Entry, stack: ExitStack) -> Place | None:
    """A server of its own: what one subscribes to, the server compares with all that others write, in any database."""
    if entry.server == "plain":
        return Place(stack.enter_context(ServerProcess(config={"notify-keyspace-events": "K$"})))
    if entry.server == "append-only":
        return Place(stack.enter_context(embedded_server()))
    return None


def _start(record: Record, folder: Path, stack: ExitStack) -> None:
    if not record.entry.can_take_part:
        record.failure = "not installed; `make bench` does it"
        return
    try:
        record.pair = stack.enter_context(pair_of(record.entry, record.place, folder))
        for in_flight in IN_FLIGHT:
            record.pair.call(in_flight, WARM_UP_S)
        _clean(record)
    except PeerFailed as failure:
        _give_up(record, failure)


def _call(record: Record, in_flight: int) -> None:
    if record.pair is None:
        return
    try:
        record.rounds[in_flight].append(record.pair.call(in_flight, ROUND_S))
        _clean(record)
    except PeerFailed as failure:
        _give_up(record, failure)


def _clean(record: Record) -> None:
    if record.place and record.entry.leaves_keys:
        record.place.empty()


def _give_up(record: Record, failure: PeerFailed) -> None:
    record.failure, record.pair = str(failure), None


def _idle_percent(records: Sequence[Record]) -> float:
    pairs = [record.pair for record in records if record.pair]
    before_s = sum(pair.requester.cpu_s() + pair.responder.cpu_s() for pair in pairs)
    time.sleep(IDLE_S)
    spent_s = sum(pair.requester.cpu_s() + pair.responder.cpu_s() for pair in pairs) - before_s
    return spent_s / IDLE_S * 100


def _show(report: Report, records: Sequence[Record], loop: Loop) -> None:
    for in_flight in IN_FLIGHT:
        figures = {record.entry: record.figure(in_flight) for record in records}
        measured = {entry: figure for entry, figure in figures.items() if figure}
        _show_figures(report, measured, loop, in_flight)
        _show_goals(report, measured, loop, in_flight)
        report.note("")
    for record in records:
        _show_failures(report, record)


def _show_failures(report: Report, record: Record) -> None:
    rounds = [each for rounds in record.rounds.values() for each in rounds]
    if record.failure:
        report.note(f"{record.entry.name}: {'measured in part' if rounds else 'not measured'}: {record.failure}")
    if failed := [each for each in rounds if each.failures]:
        number, calls = (sum(getattr(each, fact) for each in rounds) for fact in ("failures", "calls"))
        of_all = f"{number:,} of {number + calls:,} calls failed"
        report.note(f"{record.entry.name}: {of_all}, the last with {failed[-1].last_failure}")


def _show_figures(report: Report, figures: dict[Entry, Figure], loop: Loop, in_flight: int) -> None:
    ours = _of(figures, OURS)
    rows: list[list[Cell]] = []
    for entry, figure in figures.items():
        cpu = figure.cpu_us
        report.figure(
            "units", peer=entry.name, loop=entry.loop, in_flight=in_flight, per_second=figure.per_second,
            p50_ms=figure.p50_ms, p99_ms=figure.p99_ms, requester_us=cpu.requester, responder_us=cpu.responder,
            server_us=cpu.server, failures=figure.failures,
        )  # fmt: skip
        rows.append([
            entry.name, figure.per_second, shown_ratio(ours.per_second / figure.per_second) if ours else "",
            figure.p50_ms, figure.p99_ms, cpu.requester, cpu.responder, cpu.server if entry.server != "none" else "",
            f"{figure.failures:,}" if figure.failures else "",
        ])  # fmt: skip
    report.table(
        [f"{in_flight:,} in flight, on {loop}", "calls a second", "ours is", "p50 ms", "p99 ms",
         "CPU µs: requester", "responder", "server", "failed"],
        rows,
    )  # fmt: skip


def _show_goals(report: Report, figures: dict[Entry, Figure], loop: Loop, in_flight: int) -> None:
    """Against those that were measured; a missing one is said below."""
    subject = f"calls, {in_flight:,} in flight, {loop}"
    ours, nats, pubsub = (_of(figures, peer) for peer in (OURS, NATS, PUBSUB))
    if ours is None:
        report.unmeasured(subject, "ours failed")
        return
    goals = []
    if nats and in_flight == 1:
        goals.append(Goal("as soon as NATS, by p50", nats.p50_ms / ours.p50_ms, 1))
    if nats and in_flight > 1:
        goals.append(Goal("NATS", ours.per_second / nats.per_second, TIMES_NATS))
    if pubsub and in_flight > 1:
        goals.append(Goal("redis-py pub/sub", ours.per_second / pubsub.per_second, TIMES_PUBSUB))
    if goals:
        report.goals(subject, goals)


def _of(figures: dict[Entry, Figure], peer: str) -> Figure | None:
    """The first of them: ours is there on another server, too."""
    return next((figure for entry, figure in figures.items() if entry.peer == peer), None)
