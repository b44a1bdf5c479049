"""`kizuna keys` on a million keys: how long it takes, how much memory, and how long others wait for the server."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from benchmarks.reporting import Cell, Goal, Report
from kizuna.testing.servers import ServerProcess

KEYS = 1_000_000
FEW = 1_000
STEP = 10_000
PING_GOAL_S = 0.02
KIZUNA = str(Path(sys.executable).with_name("kizuna"))

# Tasks with their fields, results that end, statuses, and small hashes that end.
FILL = """
for i = ARGV[1], ARGV[2] do
  local kind = i % 5
  if kind < 2 then
    redis.call("HSET", "poppo:task:info:task-" .. i, "payload", string.rep("x", 100), "state", "waiting", "tries", 0)
  elseif kind == 2 then
    redis.call("SET", "poppo:task:result:task-" .. i, string.rep("y", 50), "EX", 36000)
  elseif kind == 3 then
    redis.call("SET", "poppo:issue:status:" .. i, "processing")
  else
    redis.call("HSET", "poppo:stats:requests:hour-" .. i, "count", i, "errors", 0)
    redis.call("EXPIRE", "poppo:stats:requests:hour-" .. i, 36000)
  end
end
"""


class Ran(NamedTuple):
    seconds: float
    peak_mib: float
    pings_ms: list[float]

    @property
    def p99_s(self) -> float:
        return quantiles(self.pings_ms, n=100)[98] / 1000


def measure(report: Report) -> None:
    report.title(f"kizuna keys on {KEYS:,} keys, and a PING from elsewhere every 2 ms")
    with ServerProcess() as few, ServerProcess() as many, tempfile.TemporaryDirectory() as folder:
        _fill(few, FEW)
        _fill(many, KEYS)
        quiet = _pings(many, 2.0)
        report.note(f"while nothing else happens, 99 of 100 PINGs take {quantiles(quiet, n=100)[98]:.2f} ms at most")
        rows: list[list[Cell]] = []
        for what, arguments in _commands(Path(folder)):
            small, ran = _run(few, arguments), _run(many, arguments)
            rows.append([what, ran.seconds, ran.peak_mib, ran.peak_mib - small.peak_mib, ran.p99_s * 1000])
            report.figure(
                "inspection",
                what=what,
                keys=KEYS,
                seconds=ran.seconds,
                peak_mib=ran.peak_mib,
                peak_mib_of_few=small.peak_mib,
                ping_p99_ms=ran.p99_s * 1000,
                ping_longest_ms=ran.pings_ms[-1],
            )
            report.goals(f"{what}: p99 of a foreign PING", [Goal("", ran.p99_s, PING_GOAL_S, at_most=True)])
        report.table(
            ["", "seconds", "peak MiB", f"more than with {FEW:,}", "PING p99 ms"],
            rows,
        )


def _commands(folder: Path) -> Iterator[tuple[str, list[str]]]:
    file = str(folder / "backup")
    yield "keys ls", ["ls"]
    yield "keys ls --json", ["ls", "--json"]
    yield "keys tree", ["tree"]
    yield "keys stat", ["stat"]
    yield "keys lint", ["lint"]
    yield "keys backup", ["backup", file, "--force"]
    yield "keys restore --replace", ["restore", file, "--replace"]
    yield "keys clean", ["clean", "*", "--yes"]


def _fill(server: ServerProcess, keys: int) -> None:
    with server.connect(timeout_s=30) as conversation:
        for first in range(0, keys, STEP):
            conversation.call("EVAL", FILL, 0, first, min(first + STEP, keys) - 1)


def _run(server: ServerProcess, arguments: list[str]) -> Ran:
    command = [KIZUNA, "--url", server.url, "keys", *arguments, *(["-q"] if arguments[0] != "ls" else [])]
    with _pinging(server) as pings:
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            peak_mib = _peak_mib(process)
            told = process.stderr.read().decode() if process.stderr else ""
        seconds = time.perf_counter() - began
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {told}")
    return Ran(seconds, peak_mib, pings)


def _peak_mib(process: subprocess.Popen[bytes]) -> float:
    """The most memory that it had, as the kernel told it last. Not from wait4, which counts ours before the exec."""
    peak_kib = 0
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak_kib = max(peak_kib, *map(int, re.findall(r"VmHWM:\s+(\d+)", status)), 0)
        time.sleep(0.02)
    return peak_kib / 1024


def _pings(server: ServerProcess, seconds: float) -> list[float]:
    with _pinging(server) as pings:
        time.sleep(seconds)
    return pings


@contextmanager
def _pinging(server: ServerProcess) -> Iterator[list[float]]:
    """A list that holds, after the block, how long each PING of another process took meanwhile, in order of length."""
    pings: list[float] = []
    command = [sys.executable, "-m", "benchmarks.pinger", server.host, str(server.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pinger:
        yield pings
        told, _ = pinger.communicate()
    pings += json.loads(told)
