"""A backlog of 50,000 tickets that one backend makes 1v1 matches of, from its start to the last assignment."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from benchmarks.match_peers.backlog import Backlog
from benchmarks.match_peers.systems import Cpu, System, Systems
from benchmarks.peer_processes import PeerFailed
from benchmarks.reporting import Cell, Goal, Report
from kizuna.testing.servers import ServerProcess

TICKETS = 50_000
ROUNDS = 3
TICK_MS = 1
"""Of minimatch, so that it never waits."""
WITHIN_S = 60.0
LOOK_EVERY_S = 0.01
TIMES_MINIMATCH = 2


@dataclass
class Drains:
    system: System
    seconds: list[float] = field(default_factory=list)
    cpu_us: list[Cpu] = field(default_factory=list)
    failure: str = ""

    @property
    def per_second(self) -> float:
        return TICKETS / median(self.seconds)


def measure(report: Report, systems: Systems) -> None:
    backlog = Backlog(TICKETS)
    contenders = [Drains(system) for system in systems.all]
    for _ in range(ROUNDS):
        for drains in contenders:
            try:
                _drain(drains, backlog)
            except PeerFailed as failure:
                drains.failure = str(failure)
    _show(report, contenders)
    _show_goal(report, systems, contenders)


def _drain(drains: Drains, backlog: Backlog) -> None:
    system = drains.system
    system.empty()
    backlog.load(system.server)
    with ExitStack() as stack:
        backend = system.start("backend", stack)
        backend.order("stand")
        system.processes = [backend]
        before, began = system.cpu(), time.perf_counter()
        backend.order("run", tick_ms=TICK_MS)
        _wait_until_none_waits(system.server)
        took_s, after = time.perf_counter() - began, system.cpu()
    if (assigned := backlog.assigned(system.server)) != TICKETS:
        raise PeerFailed(f"{assigned:,} of {TICKETS:,} tickets were assigned")
    drains.seconds.append(took_s)
    drains.cpu_us.append(Cpu(*((end - start) * 1e6 / TICKETS for start, end in zip(before, after, strict=True))))
    system.empty()


def _wait_until_none_waits(server: ServerProcess) -> None:
    ends_at = time.perf_counter() + WITHIN_S
    with server.connect(timeout_s=30) as conversation:
        while waiting := conversation.call("SCARD", "allTickets"):
            if time.perf_counter() > ends_at:
                raise PeerFailed(f"{waiting:,} of {TICKETS:,} tickets were waiting after {WITHIN_S:g} s")
            time.sleep(LOOK_EVERY_S)


def _show(report: Report, contenders: list[Drains]) -> None:
    measured = [drains for drains in contenders if drains.seconds]
    for drains in contenders:
        if drains.failure:
            report.note(f"{drains.system.peer}: {len(drains.seconds)} of {ROUNDS} drained: {drains.failure}")
    rows: list[list[Cell]] = []
    for drains in measured:
        cpu = Cpu(*map(median, zip(*drains.cpu_us, strict=True)))
        report.figure(
            "match", measured="drain", who=drains.system.peer, tickets=TICKETS, per_second=drains.per_second,
            backend_us=cpu.serving, server_us=cpu.server,
        )  # fmt: skip
        rows.append([drains.system.peer, median(drains.seconds), drains.per_second, cpu.serving, cpu.server])
    report.table([f"{TICKETS:,} tickets, 1 backend", "seconds", "tickets a second", "CPU µs: backend", "server"], rows)


def _show_goal(report: Report, systems: Systems, contenders: list[Drains]) -> None:
    subject = f"drain of {TICKETS:,} tickets"
    if systems.minimatch is None:
        report.unmeasured(subject, f"no minimatch: {systems.why_not}")
        return
    ours, minimatch = contenders
    if not ours.seconds or not minimatch.seconds:
        report.unmeasured(subject, ours.failure or minimatch.failure)
    else:
        report.goals(subject, [Goal("minimatch", ours.per_second / minimatch.per_second, TIMES_MINIMATCH)])
