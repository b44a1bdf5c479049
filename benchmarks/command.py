"""How long people wait: for the help text, for `kizuna up`, for the embedded server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.reporting import Goal, Report
from kizuna.settings import EmbeddedSettings
from kizuna.store.embedded.server import EmbeddedServer

TIMES = 5
HELP_GOAL_S = 0.15
UP_GOAL_S = 2.0
READY_WITHIN_S = 20.0

KIZUNA = str(Path(sys.executable).with_name("kizuna"))


def measure(report: Report) -> None:
    report.title("The command")
    help_s = min(_help_cpu_s() for _ in range(TIMES))
    report.figure("command", what="kizuna --help, CPU", seconds=help_s)
    report.goals("kizuna --help, CPU, best of 5", [Goal("", help_s, HELP_GOAL_S, at_most=True)])
    up_s = median(_until_up_s() for _ in range(3))
    report.figure("command", what="kizuna up until its first line", seconds=up_s)
    report.goals("kizuna up until its first line, empty folder", [Goal("", up_s, UP_GOAL_S, at_most=True)])
    cold_s, warm_s = asyncio.run(_embedded_s())
    for what, seconds in (("embedded server, started", cold_s), ("embedded server, found running", warm_s)):
        report.figure("command", what=what, seconds=seconds)
        report.note(f"{what}: {seconds:.3f} s")


def _help_cpu_s() -> float:
    with subprocess.Popen([KIZUNA, "--help"], stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"kizuna --help ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def _until_up_s() -> float:
    with _own_home() as environment:
        began = time.perf_counter()
        with subprocess.Popen(
            [KIZUNA, "up"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        ) as process:
            assert process.stdout is not None
            first_line = process.stdout.readline()
            took_s = time.perf_counter() - began
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=READY_WITHIN_S)
    if not first_line:
        raise RuntimeError(f"kizuna up ended with {process.returncode} before it was ready")
    return took_s


@contextmanager
def _own_home() -> Iterator[dict[str, str]]:
    """The environment of somebody who has never used kizuna, and whose server and ports are nobody else's."""
    with tempfile.TemporaryDirectory(prefix="kizuna-benchmark-") as folder:
        yield {
            **{name: value for name, value in os.environ.items() if not name.startswith("KIZUNA_")},
            "HOME": folder,
            "KIZUNA_EMBEDDED__FOLDER": f"{folder}/server",
            "KIZUNA_EMBEDDED__PORT": "0",
            "KIZUNA_PROBES__PORT": "0",
        }


async def _embedded_s() -> tuple[float, float]:
    """Started in an empty folder, and found there by the next who needs it."""
    with tempfile.TemporaryDirectory(prefix="kizuna-benchmark-") as folder:
        settings = EmbeddedSettings(folder=folder, port=0)
        first, second = EmbeddedServer(settings), EmbeddedServer(settings)
        try:
            cold_s = await _attach_s(first)
            warm_s = await _attach_s(second)
        finally:
            await second.detach()
            await first.detach()
        return cold_s, warm_s


async def _attach_s(server: EmbeddedServer) -> float:
    began = time.perf_counter()
    await server.attach()
    return time.perf_counter() - began
