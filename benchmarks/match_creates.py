"""Tickets created a second, with 64 in flight: over gRPC by one to four frontend processes, and by the Python face."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.loops import Loop
from benchmarks.match_peers.systems import EMPTY, MINIMATCH, Cpu, System, Systems
from benchmarks.peer_processes import PeerProcess
from benchmarks.reporting import Cell, Goal, Report

IN_FLIGHT = 64
ROUNDS = 3
ROUND_S = 1.0
FRONTENDS = 4
TIMES_MINIMATCH = 1

Work = Callable[[], dict[str, Any]]


@dataclass
class Contender:
    title: str
    system: System
    work: Work
    face: str = "gRPC"
    rates: list[float] = field(default_factory=list)
    cpu_us: list[Cpu] = field(default_factory=list)
    last_failure: str = ""

    def take_turn(self) -> None:
        facts, cpu = self.system.cpu_of(self.work)
        self.system.empty()
        done = max(facts["done"], 1)
        self.rates.append(facts["done"] / facts["seconds"])
        self.cpu_us.append(Cpu(*(seconds * 1e6 / done for seconds in cpu)))
        self.last_failure = facts["last_failure"] or self.last_failure

    @property
    def per_second(self) -> float:
        return median(self.rates)


def measure(report: Report, systems: Systems, loops: Sequence[Loop]) -> None:
    with ExitStack() as stack:
        contenders = _contenders(systems, loops, stack)
        for _ in range(ROUNDS):
            for contender in contenders:
                contender.take_turn()
    _show(report, contenders)
    _show_goals(report, systems, contenders)


def _contenders(systems: Systems, loops: Sequence[Loop], stack: ExitStack) -> list[Contender]:
    def by_grpc(targets: Sequence[str]) -> Work:
        return lambda: systems.game.order("create", targets=targets, in_flight=IN_FLIGHT, seconds=ROUND_S)

    def by_hand(player: PeerProcess) -> Work:
        return lambda: player.order("create", in_flight=IN_FLIGHT, seconds=ROUND_S)

    ours = systems.ours
    ours.start_frontends(FRONTENDS, stack)
    empty = System(EMPTY, ours.server, ours.folder, ours.loop)
    empty.start_frontends(1, stack)
    found = []
    if systems.minimatch:
        systems.minimatch.start_frontends(1, stack)
        found.append(Contender("minimatch, 1 process", systems.minimatch, by_grpc(systems.minimatch.targets)))
    for number in range(1, FRONTENDS + 1):
        some = System(ours.peer, ours.server, ours.folder, ours.loop, processes=ours.processes[:number])
        title = f"kizuna, {number} process{'es' if number > 1 else ''}"
        found.append(Contender(title, some, by_grpc(ours.targets[:number])))
    found.append(Contender("grpc.aio that does nothing, 1 process", empty, by_grpc(empty.targets)))
    for loop in loops:
        face = System(ours.peer, ours.server, ours.folder, loop)
        face.processes = [face.start("player", stack)]
        found.append(Contender(f"kizuna, {loop}", face, by_hand(face.processes[0]), face="Python"))
    return found


def _show(report: Report, contenders: Sequence[Contender]) -> None:
    rows: list[list[Cell]] = []
    nothing = next(each for each in contenders if each.system.peer == EMPTY)
    for each in contenders:
        cpu = Cpu(*map(median, zip(*each.cpu_us, strict=True)))
        report.figure(
            "match", measured="creates", who=each.title, by=each.face, per_second=each.per_second,
            process_us=cpu.serving, server_us=cpu.server,
        )  # fmt: skip
        ratio = each.per_second / nothing.per_second
        rows.append([each.title, each.face, each.per_second, ratio, cpu.serving, cpu.server, each.last_failure])
    head = [f"creates, {IN_FLIGHT} in flight", "by", "a second", "times grpc.aio", "CPU µs: its processes", "server"]
    report.table([*head, "failed"], rows)


def _show_goals(report: Report, systems: Systems, contenders: Sequence[Contender]) -> None:
    minimatch = next((each for each in contenders if each.system.peer == MINIMATCH), None)
    for each in contenders:
        if each.face != "Python":
            continue
        subject = f"creates by the Python face, {each.system.loop}"
        if minimatch is None:
            report.unmeasured(subject, f"no minimatch: {systems.why_not}")
        else:
            ratio = each.per_second / minimatch.per_second
            report.goals(subject, [Goal("minimatch over gRPC", ratio, TIMES_MINIMATCH)])
