"""From before a ticket is created until its assignment is here, in 1v1, while players come at an even rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from benchmarks.match_peers.systems import OURS, Cpu, System, Systems
from benchmarks.peer_processes import PeerProcess
from benchmarks.reporting import Cell, Goal, Report

RATES = (500, 1_000, 2_000)
ROUNDS = 3
ROUND_S = 2.0
WAIT_S = 10.0
WARM_UP, WARM_UP_S = 200, 0.3
TICK_MS = 100
"""Of minimatch, as its figures are known; ours has its own, and wakes when a ticket is new."""
PROMISED_AT = 1_000
P50_MS, P99_MS = 15, 60

Play = Callable[..., dict[str, Any]]


@dataclass
class Contender:
    title: str
    system: System
    frontends: int = 0
    """By gRPC, with so many; 0: by the Python face."""
    rounds: dict[int, list[dict[str, Any]]] = field(default_factory=lambda: {rate: [] for rate in RATES})

    def take_turn(self, game: PeerProcess) -> None:
        """With processes of its own: who has once watched hears of all assignments from then on."""
        self.system.empty()
        with ExitStack() as stack:
            play = self._start(game, stack)
            play(per_second=WARM_UP, seconds=WARM_UP_S, wait_s=WAIT_S)
            for rate in RATES:
                facts, cpu = self.system.cpu_of(partial(play, per_second=rate, seconds=ROUND_S, wait_s=WAIT_S))
                done = max(facts["done"], 1)
                self.rounds[rate].append({**facts, "cpu_us": Cpu(*(seconds * 1e6 / done for seconds in cpu))})

    def median(self, rate: int, figure: Callable[[dict[str, Any]], float]) -> float:
        return median(map(figure, self.rounds[rate]))

    def _start(self, game: PeerProcess, stack: ExitStack) -> Play:
        self.system.processes, self.system.targets = [], []
        self.system.start_backend(stack, TICK_MS)
        if self.frontends:
            self.system.start_frontends(self.frontends, stack)
            return partial(game.order, "play", targets=self.system.targets)
        player = self.system.start("player", stack)
        self.system.processes.append(player)
        return partial(player.order, "play")


def measure(report: Report, systems: Systems) -> None:
    contenders = _contenders(systems)
    for _ in range(ROUNDS):
        for contender in contenders:
            contender.take_turn(systems.game)
    for rate in RATES:
        _show(report, contenders, rate)
    for contender in contenders:
        if contender.system.peer == OURS:
            _show_goals(report, contender)


def _contenders(systems: Systems) -> list[Contender]:
    ours, minimatch = systems.ours, systems.minimatch
    found = [
        Contender("kizuna, 1 frontend", ours, 1),
        Contender("kizuna, 2 frontends", ours, 2),
        Contender("kizuna, Python face", ours),
    ]
    return [*found, *([Contender("minimatch, 1 frontend", minimatch, 1)] if minimatch else [])]


def _show(report: Report, contenders: Sequence[Contender], rate: int) -> None:
    rows: list[list[Cell]] = []
    for each in contenders:
        figures = {
            "came_per_second": each.median(rate, lambda one: rate * ROUND_S / one["seconds"]),
            "p50_ms": each.median(rate, lambda one: one["p50_ms"]),
            "p99_ms": each.median(rate, lambda one: one["p99_ms"]),
            "process_us": each.median(rate, lambda one: one["cpu_us"].serving),
            "server_us": each.median(rate, lambda one: one["cpu_us"].server),
        }
        failures = sum(one["failures"] for one in each.rounds[rate])
        why = next((one["last_failure"] for one in each.rounds[rate] if one["last_failure"]), "")
        report.figure("match", measured="waits", who=each.title, rate=rate, failures=failures, **figures)
        rows.append([each.title, *figures.values(), f"{failures:,}: {why}" if failures else ""])
    report.table(
        [f"1v1, {rate:,} tickets a second", "came", "p50 ms", "p99 ms", "CPU µs: its processes", "server", "failed"],
        rows,
    )


def _show_goals(report: Report, ours: Contender) -> None:
    p50_ms = ours.median(PROMISED_AT, lambda one: one["p50_ms"])
    p99_ms = ours.median(PROMISED_AT, lambda one: one["p99_ms"])
    failures = sum(one["failures"] for one in ours.rounds[PROMISED_AT])
    subject = f"create to assignment, {PROMISED_AT:,} a second, {ours.title}"
    if failures:
        report.unmeasured(subject, f"{failures} of them got none")
        return
    report.goals(
        subject,
        [
            Goal("p50", p50_ms, P50_MS, at_most=True, unit="ms"),
            Goal("p99", p99_ms, P99_MS, at_most=True, unit="ms"),
        ],
    )
