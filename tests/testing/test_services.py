from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from kizuna.testing import assert_starts_and_stops

if TYPE_CHECKING:
    from collections.abc import Callable

    from kizuna.service import Service


class EchoServer:
    """A service as it should be, with a socket and a task per connection."""

    port = 0

    async def run(self, started: asyncio.Event) -> None:
        # A start_server() that also serves leaves its socket behind if it is cancelled in its last turn.
        listener = await asyncio.start_server(self._echo, "127.0.0.1", 0, start_serving=False)
        EchoServer.port = listener.sockets[0].getsockname()[1]
        async with listener:
            await listener.start_serving()
            started.set()
            await asyncio.Event().wait()

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()
        await writer.wait_closed()


async def echoes() -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", EchoServer.port)
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    writer.close()
    await writer.wait_closed()


async def test_a_good_service_passes() -> None:
    await assert_starts_and_stops(EchoServer, check_working=echoes)


class Leaky:
    """Leaves what it is told to leave."""

    def __init__(self, leave: Callable[[], object]) -> None:
        self.leave = leave

    async def run(self, started: asyncio.Event) -> None:
        self.leave()
        started.set()
        await asyncio.Event().wait()


class Leaving:
    """Things that a careless service would leave, collected so that the test can clean up."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.tasks: list[asyncio.Task[object]] = []
        self.threads: list[threading.Thread] = []
        self.children: list[subprocess.Popen[bytes]] = []
        self.files: list[int] = []

    def task(self) -> None:
        self.tasks.append(asyncio.create_task(asyncio.Event().wait()))

    def thread(self) -> None:
        self.threads.append(threading.Thread(target=self.over.wait, name="left-over"))
        self.threads[-1].start()

    def child(self) -> None:
        self.children.append(subprocess.Popen(["/bin/sleep", "60"]))

    def file(self) -> None:
        self.files.append(os.open("/dev/null", os.O_RDONLY))

    def clean_up(self) -> None:
        self.over.set()
        for task in self.tasks:
            task.cancel()
        for thread in self.threads:
            thread.join()
        for child in self.children:
            child.kill()
            child.wait()
        for file in self.files:
            os.close(file)


@pytest.mark.parametrize(
    ("what", "complaint"),
    [("task", "tasks: .*Event.wait"), ("thread", "threads: left-over"), ("child", "children: "), ("file", "/dev/null")],
)
async def test_whatever_is_left_is_named(what: str, complaint: str) -> None:
    leaving = Leaving()
    try:
        with pytest.raises(AssertionError, match=f"after start and stop number 1 this was left: .*{complaint}"):
            await assert_starts_and_stops(lambda: Leaky(getattr(leaving, what)), times=1)
    finally:
        leaving.clean_up()


class StartedTooEarly:
    async def run(self, started: asyncio.Event) -> None:
        started.set()
        await asyncio.Event().wait()


async def test_a_service_that_says_it_has_started_too_early_is_found_out() -> None:
    async def works() -> bool:
        return False

    with pytest.raises(AssertionError, match="it said that it had started, but does not work"):
        await assert_starts_and_stops(StartedTooEarly, check_working=works)


class SlowToStop:
    async def run(self, started: asyncio.Event) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(30)


async def test_a_service_that_must_be_told_twice_to_stop_is_found_out() -> None:
    with pytest.raises(AssertionError, match=r"it took \d+\.\ds to stop, and had to be told twice"):
        await assert_starts_and_stops(SlowToStop, stop_within_s=0.1)


class ForgetsItsChildWhenCancelledEarly:
    """Takes its resource before the block that would give it back."""

    def __init__(self, files: list[int]) -> None:
        self.files = files

    async def run(self, started: asyncio.Event) -> None:
        file = os.open("/dev/null", os.O_RDONLY)
        self.files.append(file)
        await asyncio.sleep(0.02)
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            os.close(file)
            self.files.remove(file)


async def test_what_only_a_cancelled_start_leaves_is_found_too() -> None:
    files: list[int] = []

    def make() -> Service:
        return ForgetsItsChildWhenCancelledEarly(files)

    with pytest.raises(AssertionError, match=r"after cancelled start number \d+ this was left: .*/dev/null"):
        await assert_starts_and_stops(make, times=3)
    for file in files:
        os.close(file)
