"""The test that every service is put through: it starts, works and stops, again and again, and leaves nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kizuna.service import running
from kizuna.testing.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kizuna.service import Service

# A closed transport gives its file descriptor back in one of the next turns of the loop.
_GONE_WITHIN_S = 1.0


async def assert_starts_and_stops(
    make: Callable[[], Service],
    *,
    times: int = 50,
    check_working: Callable[[], Awaitable[object]] | None = None,
    stop_within_s: float = 10.0,
) -> None:
    """Start and stop what `make` makes `times` times, then cancel it as often during its start.

    `check_working` is awaited as soon as the service says that it has started; it raises or returns False if
    that was not true. After each round no task, thread, child process or file descriptor may be there that
    was not there before, and the service must have stopped by itself within `stop_within_s`.

    The first round is not looked at: what a library opens once and keeps is no leak.
    """
    start_s = await _start_and_stop(make, check_working, stop_within_s)
    before = held_by_this_process()
    for number in range(times):
        start_s = max(start_s, await _start_and_stop(make, check_working, stop_within_s))
        await _assert_nothing_left(before, f"start and stop number {number + 1}")
    for number in range(times):
        await _cancel_during_start(make, number, start_s * number / times, stop_within_s)
        await _assert_nothing_left(before, f"cancelled start number {number + 1}")


async def _start_and_stop(
    make: Callable[[], Service],
    check_working: Callable[[], Awaitable[object]] | None,
    stop_within_s: float,
) -> float:
    """Returns how long the start took."""
    began = time.monotonic()
    async with running(make(), stop_timeout_s=stop_within_s):
        start_s = time.monotonic() - began
        if check_working is not None:
            worked = await check_working()
            assert worked is not False, "it said that it had started, but does not work"
        stop_began = time.monotonic()
    stop_s = time.monotonic() - stop_began
    assert stop_s < stop_within_s, f"it took {stop_s:.1f}s to stop, and had to be told twice"
    return start_s


async def _cancel_during_start(make: Callable[[], Service], turns: int, after_s: float, stop_within_s: float) -> None:
    async def start() -> None:
        async with running(make(), stop_timeout_s=stop_within_s):
            await asyncio.Event().wait()

    starting = asyncio.create_task(start())
    # Every other round counts turns of the loop, to meet also what happens between two moments of the clock.
    if turns % 2:
        await asyncio.sleep(after_s)
    else:
        for _ in range(turns):
            await asyncio.sleep(0)
    cancelled_at = time.monotonic()
    starting.cancel()
    await asyncio.wait([starting])
    stop_s = time.monotonic() - cancelled_at
    assert starting.cancelled(), f"cancelled during its start, it ended with {starting.exception()!r}"
    assert stop_s < stop_within_s, f"cancelled during its start, it took {stop_s:.1f}s to stop"


class Held(NamedTuple):
    """What a process holds that it must give back."""

    tasks: frozenset[str]
    threads: frozenset[str]
    children: frozenset[str]
    files: frozenset[str]

    def beyond(self, before: Held) -> str:
        """What is held now and was not before, as text; empty if nothing."""
        pairs = zip(self._fields, self, before, strict=True)
        return "; ".join(f"{kind}: {', '.join(sorted(now - then))}" for kind, now, then in pairs if now - then)


def held_by_this_process() -> Held:
    """Call it inside an event loop. The loop's own helper threads (`asyncio.to_thread`) do not count."""
    return Held(
        tasks=frozenset(f"{task.get_name()} {task.get_coro()}" for task in asyncio.all_tasks()),
        threads=frozenset(
            f"{thread.name} ({thread.ident})"
            for thread in threading.enumerate()
            if not thread.name.startswith("asyncio_")
        ),
        children=frozenset(_children()),
        files=frozenset(_open_files()),
    )


async def _assert_nothing_left(before: Held, when: str) -> None:
    def nothing_left() -> bool:
        left = held_by_this_process().beyond(before)
        assert not left, f"after {when} this was left: {left}"
        return True

    await eventually(nothing_left, within_s=_GONE_WITHIN_S, every_s=0.005)


def _open_files() -> list[str]:
    listed = list(Path("/dev/fd").iterdir())
    return [f"{file.name} -> {target}" for file in listed if (target := _target_of(file))]


def _target_of(file: Path) -> str:
    try:
        return str(file.readlink())
    except FileNotFoundError:  # the descriptor by which the folder was listed
        return ""
    except OSError:  # no link on this system: the number has to do
        return "?"


def _children() -> list[str]:
    if sys.platform == "linux":
        return [child for task in Path("/proc/self/task").iterdir() for child in _children_of(task)]
    listed = subprocess.run(["/bin/ps", "-A", "-o", "pid=,ppid=,comm="], check=True, capture_output=True, text=True)
    lines = (line.split(None, 2) for line in listed.stdout.splitlines())
    return [f"{pid} {name}" for pid, parent, name in lines if parent == str(os.getpid()) and "ps" not in name]


def _children_of(task: Path) -> list[str]:
    try:
        return (task / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # a thread that has ended since the folder was listed
        return []
