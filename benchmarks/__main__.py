"""python -m benchmarks [suite …] [--loop asyncio|uvloop|both] [--peer NAME] [--json FILE] [--strict]

Everything in one run, on one server, so that the ratios mean something; about twenty minutes.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from pathlib import Path

from benchmarks import (
    command,
    idle_units,
    inspection,
    locks,
    match,
    memory,
    memory_growth,
    memory_leftovers,
    notifications,
    queue_growth,
    queues,
    scripts,
    units,
    wire,
)
from benchmarks.loops import LOOPS, Loop
from benchmarks.memory_peers.entries import PEERS as MEMORY_PEERS
from benchmarks.queue_peers.entries import PEERS as QUEUE_PEERS
from benchmarks.reporting import Report
from benchmarks.unit_peers.entries import PEERS as UNIT_PEERS
from kizuna.testing.servers import ServerProcess

SUITES = (
    "wire",
    "scripts",
    "notifications",
    "locks",
    "command",
    "queues",
    "growth",
    "units",
    "memory",
    "memory-growth",
    "match",
    "inspection",
)
PEERS = (*QUEUE_PEERS, *UNIT_PEERS, *MEMORY_PEERS)


def main() -> int:
    asked = _arguments()
    suites = asked.suites or SUITES
    loops: tuple[Loop, ...] = LOOPS if asked.loop == "both" else (asked.loop,)
    report, began = Report(), time.monotonic()
    with ServerProcess(config={"notify-keyspace-events": "KA"}) as server:
        about = _about(server)
        report.note(about)
        if "wire" in suites:
            wire.measure(report, server.url, loops)
        if "scripts" in suites:
            scripts.measure(report, server, loops)
        if "notifications" in suites:
            notifications.measure(report, server, loops)
        if "locks" in suites:
            locks.measure(report, server, loops)
        if "command" in suites:
            command.measure(report)
    if "queues" in suites:
        queues.measure(report, loops, asked.peer)
    if "growth" in suites:
        queue_growth.measure(report, loops[-1])
    if "units" in suites:
        units.measure(report, loops, asked.peer)
        idle_units.measure(report, loops)
    if "memory" in suites:
        memory.measure(report, loops, asked.peer)
    if "memory-growth" in suites:
        memory_growth.measure(report, loops[-1])
        memory_leftovers.measure(report, loops[-1])
    if "match" in suites:
        match.measure(report, loops)
    if "inspection" in suites:
        inspection.measure(report)
    report.verdict()
    report.note(f"took {time.monotonic() - began:.0f} s")
    if asked.json:
        report.save(asked.json, about)
    return 1 if asked.strict and report.missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n\n")[2])
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"some of {', '.join(SUITES)}; default all")
    parser.add_argument("--loop", choices=[*LOOPS, "both"], default="both")
    parser.add_argument(
        "--peer", action="append", default=[], choices=PEERS, help="queues, units, memory: only this; can be repeated"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to this file")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a goal is missed")
    asked = parser.parse_args()
    for suite in asked.suites:
        if suite not in SUITES:
            parser.error(f"no suite {suite!r}; there are {', '.join(SUITES)}")
    return asked


def _about(server: ServerProcess) -> str:
    info = server.info("server")
    valkey = info.get("valkey_version") or info["redis_version"]
    busy = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return (
        f"Python {platform.python_version()}, server {valkey}, {os.cpu_count()} cores, "
        f"load {busy} before the run; each figure is a median, each ratio from this run"
    )


if __name__ == "__main__":
    sys.exit(main())
