"""Locks among processes: some that are many, some that are stopped, some that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kizuna.app import connect
from kizuna.settings import Settings
from kizuna.testing import ServerProcess, eventually

HERE = Path(__file__).parent
PROCESSES = 50


@contextmanager
def started(file: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Killed at the end of the block, and all that it has forked."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / file), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"it ended with {process.wait()}"
    return line.strip()


def tell(process: subprocess.Popen[str], what: str = "go") -> None:
    assert process.stdin is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()


def test_fifty_processes_never_hold_one_lock_at_the_same_time(server: ServerProcess, root: str) -> None:
    with started("lock_contender.py", server.url, root, "nightly", "2", str(PROCESSES)) as contenders:
        assert [line_of(contenders) for _ in range(PROCESSES)] == ["ready"] * PROCESSES
        tell(contenders)
        turns = [[int(word) for word in line_of(contenders).split()] for _ in range(2 * PROCESSES)]
        assert contenders.wait(timeout=120) == 0

    # Each got it twice; what one read, the one before it had written; and in that order the numbers rose.
    turns.sort()
    assert [read for _, read in turns] == list(range(2 * PROCESSES))
    assert len({fence for fence, _ in turns}) == 2 * PROCESSES
    server.call("DEL", f"{root}:temp:counter")


async def test_a_holder_that_was_stopped_past_its_lease_is_refused_by_its_number_and_told(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    with started("lock_sleeper.py", server.url, root, "nightly", "1.5") as sleeper:
        fence = int(line_of(sleeper))
        tell(sleeper)
        assert line_of(sleeper) == "written"
        sleeper.send_signal(signal.SIGSTOP)
        async with connect(settings) as k, k.locks.hold("nightly", wait_s=30) as held:
            assert held.fence > fence
            await held.guard("report")
            tell(sleeper)
            sleeper.send_signal(signal.SIGCONT)

            said = {await asyncio.to_thread(line_of, sleeper) for _ in range(2)}
            refused = f"number {fence} is refused, for number {held.fence} was here already"
            assert said == {"lost", f"refused: lock 'report' was lost: {refused}; somebody else may hold it now"}
            await held.verify()


async def test_a_waiter_that_was_killed_keeps_nobody_waiting(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    async def in_line(number: int) -> None:
        await eventually(lambda: server.call("ZCARD", f"{root}:locks:line:nightly") == number, within_s=20)

    async with connect(settings) as k:
        held = await k.locks.acquire("nightly", lease_s=60)
        with started("lock_contender.py", server.url, root, "nightly", "1", "1") as killed:
            assert line_of(killed) == "ready"
            tell(killed)
            await in_line(1)
            waiting = asyncio.create_task(k.locks.acquire("nightly", wait_s=30))
            await in_line(2)
        await held.release()

        await (await waiting).release()


async def test_a_holder_that_was_killed_keeps_nobody_longer_than_its_lease(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    with started("lock_sleeper.py", server.url, root, "nightly", "0.5") as holder:
        fence = int(line_of(holder))
    async with connect(settings) as k, k.locks.hold("nightly", wait_s=30) as held:
        assert held.fence > fence
