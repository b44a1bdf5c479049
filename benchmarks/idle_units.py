"""What units cost that nobody calls: one unit in a process against a thousand, and ten calls a second to one of them.

All at the same time, each on a server of its own: what counts is the CPU time of the process and of its server, which
hardly depends on who else uses the machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.loops import Loop
from benchmarks.peer_processes import PeerFailed
from benchmarks.reporting import Goal, Report
from benchmarks.unit_peers.entries import Entry
from benchmarks.unit_peers.pairs import Pair, Place, pair_of
from kizuna.testing.servers import ServerProcess

CALL_EVERY_S = 0.1
SETTLED_AFTER_S = 2.0
MEASURED_S = 10.0
"""Twice the time after which a unit says again that it is there."""
MORE_PERCENT = 5.0
PEERS = {"1 unit": "kizuna", "1,000 units": "crowd"}

Percents = dict[tuple[str, Loop], tuple[float, float]]
"""Of a core, by the number of units and the loop: the process with the units, and its server."""


def measure(report: Report, loops: Sequence[Loop]) -> None:
    report.title("Units: idle ones, and 10 calls a second to one of them")
    with tempfile.TemporaryDirectory(prefix="kizuna-units-") as folder, ExitStack() as stack:
        try:
            pairs = {
                (units, loop): _pair(loop, peer, Path(folder), stack) for loop in loops for units, peer in PEERS.items()
            }
            time.sleep(SETTLED_AFTER_S)
            percents = dict(zip(pairs, _percents(list(pairs.values())), strict=True))
        except PeerFailed as failure:
            report.unmeasured("999 idle units more", str(failure))
            return
    _show(report, loops, percents)


def _pair(loop: Loop, peer: str, folder: Path, stack: ExitStack) -> Pair:
    server = stack.enter_context(ServerProcess(config={"notify-keyspace-events": "K$"}))
    return stack.enter_context(pair_of(Entry(peer, peer, "plain", loop), Place(server), folder))


def _percents(pairs: Sequence[Pair]) -> list[tuple[float, float]]:
    before = [pair.cpu_s() for pair in pairs]
    for pair in pairs:
        pair.requester.ask("call_now_and_then", every_s=CALL_EVERY_S, seconds=MEASURED_S)
    for pair in pairs:
        _check(pair.requester.answer())
    after = [pair.cpu_s() for pair in pairs]
    return [
        ((then.responder - now.responder) / MEASURED_S * 100, (then.server - now.server) / MEASURED_S * 100)
        for now, then in zip(before, after, strict=True)
    ]


def _check(facts: dict[str, object]) -> None:
    if facts["failures"]:
        raise PeerFailed(f"{facts['failures']} calls failed: {facts['last_failure']}")


def _show(report: Report, loops: Sequence[Loop], percents: Percents) -> None:
    for (units, loop), (process, server) in percents.items():
        report.figure("idle units", loop=loop, units=units, process_percent=process, server_percent=server)
    report.table(
        ["% of a core", "process", "server", "together"],
        [
            [f"{units}, {loop}", process, server, process + server]
            for (units, loop), (process, server) in percents.items()
        ],
    )
    for loop in loops:
        one, many = (sum(percents[units, loop]) for units in PEERS)
        goal = Goal("", many - one, MORE_PERCENT, at_most=True, unit="% of a core")
        report.goals(f"999 idle units more, {loop}", [goal])
