"""Several processes of one command: kept alive, and ended together."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kizuna.errors import CannotListen, ServiceFailed
from kizuna.match.serving.copies import Copies, shared_port
from kizuna.service import running
from kizuna.testing.processes import processes_on
from kizuna.testing.waiting import blocking_until, eventually

# Ends at the first SIGTERM, and says so.
WILLING = """
import os, pathlib, signal, sys
def end(*_):
    pathlib.Path(sys.argv[1], f"ended-{os.getpid()}").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""
UNWILLING = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("working", flush=True)
while True:
    signal.pause()
"""
# Of two, the second to start ends at once.
FAILING = """
import pathlib, signal, sys
try:
    pathlib.Path(sys.argv[1], "first").touch(exist_ok=False)
except FileExistsError:
    sys.exit(7)
print("working", flush=True)
signal.pause()
"""
PARENT = """
import asyncio, json, sys
from kizuna.match.serving.copies import Copies
from kizuna.service import running
async def main():
    copies = Copies(json.loads(sys.argv[1]), 2)
    async with running(copies):
        print("working", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """That the copies name in their command lines; when the test has ended, so have they."""
    yield tmp_path
    try:
        blocking_until(lambda: not processes_on(tmp_path), within_s=20)
    finally:
        for pid in processes_on(tmp_path):
            os.kill(pid, signal.SIGKILL)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def command(program: str, folder: Path) -> list[str]:
    return [sys.executable, "-c", program, str(folder)]


@asynccontextmanager
async def two(program: str, folder: Path) -> AsyncIterator[Copies]:
    copies = Copies(command(program, folder), 2)
    async with running(copies, stop_timeout_s=30):
        yield copies


async def test_all_work_before_it_has_started_and_all_end_with_it(folder: Path) -> None:
    async with two(WILLING, folder) as copies:
        pids = copies.pids
        assert sorted(map(int, copies.first_lines)) == sorted(pids) == sorted(processes_on(folder))
        assert len(set(pids)) == 2
        # A Ctrl-C in a terminal is for all of one group.
        assert os.getpgrp() not in [os.getpgid(pid) for pid in pids]

    assert processes_on(folder) == {}
    assert names_in(folder) == {f"ended-{pid}" for pid in pids}


async def test_one_that_dies_is_started_again_and_the_others_stay(folder: Path) -> None:
    async with two(WILLING, folder) as copies:
        victim, other = copies.pids
        os.kill(victim, signal.SIGKILL)
        await eventually(lambda: len(copies.first_lines) == 3, within_s=20)

        assert other in copies.pids
        assert victim not in copies.pids
        assert copies.restarts == 1
        assert len(processes_on(folder)) == 2


async def test_one_that_cannot_start_is_told_of_and_the_others_are_ended(folder: Path) -> None:
    with pytest.raises(ServiceFailed, match=r"copy [12] of 2 ended by itself: it ended with exit code 7 before"):
        async with two(FAILING, folder):
            pass

    assert processes_on(folder) == {}


async def test_told_again_it_does_not_wait_for_those_that_will_not_end(folder: Path) -> None:
    copies, started = Copies(command(UNWILLING, folder), 2), asyncio.Event()
    task = asyncio.create_task(copies.run(started))
    await asyncio.wait_for(started.wait(), 20)
    task.cancel()
    await asyncio.wait([task], timeout=0.2)
    assert not task.done()
    task.cancel()
    await asyncio.wait([task], timeout=20)

    assert task.cancelled()
    assert processes_on(folder) == {}


def test_they_end_although_whoever_started_them_was_killed(folder: Path) -> None:
    arguments = json.dumps(command(WILLING, folder))
    with subprocess.Popen([sys.executable, "-c", PARENT, arguments], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "working\n"
        copies = processes_on(folder).keys() - {parent.pid}
        parent.kill()
        parent.wait()

    assert len(copies) == 2
    blocking_until(lambda: not processes_on(folder), within_s=20)
    assert names_in(folder) == {f"ended-{pid}" for pid in copies}


# the port that they share


def test_a_port_is_kept_for_those_who_share_it() -> None:
    with shared_port("127.0.0.1", 0, "match.frontend_port") as port:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as copy:
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            copy.bind(("127.0.0.1", port))
            copy.listen()
            # The one that only keeps the port takes no connection: each of many comes to the copy.
            copy.settimeout(10)
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", port), timeout=10):
                    copy.accept()[0].close()


def test_a_port_that_others_share_is_not_ours() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        with (
            pytest.raises(CannotListen, match=r"in use.*match\.frontend_port"),
            shared_port("127.0.0.1", port, "match.frontend_port"),
        ):
            pass


def test_a_host_that_is_not_ours_is_told() -> None:
    with (
        pytest.raises(CannotListen, match="there is no such host"),
        shared_port("host.invalid", 0, "match.frontend_port"),
    ):
        pass
