"""The embedded server when processes die, start together, or meddle: nothing acknowledged is lost, there is
never a second server on a folder, and none stays behind."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kizuna.errors import Refused, ServerNotStarted
from kizuna.settings import EmbeddedSettings
from kizuna.store.embedded.folder import open_lock
from kizuna.store.embedded.server import EmbeddedServer, Running
from kizuna.store.embedded.setup import server_binary
from kizuna.testing import eventually
from kizuna.testing.processes import processes_on
from kizuna.testing.resp import Conversation

# Waits for a line, then comes; waits for another one, then goes.
USER = """
import asyncio, sys
from kizuna.settings import EmbeddedSettings
from kizuna.store.embedded.server import EmbeddedServer

async def come_and_go():
    server = EmbeddedServer(EmbeddedSettings(folder=sys.argv[1], port=0, linger_s=0.3))
    print("imported", flush=True)
    sys.stdin.readline()
    running = await server.attach()
    print(running.pid, running.keeper_pid, flush=True)
    sys.stdin.readline()
    await server.detach()

asyncio.run(come_and_go())
"""

# Comes, counts and goes some times, at random moments.
VISITOR = """
import asyncio, random, sys
from kizuna.settings import EmbeddedSettings
from kizuna.store.embedded.server import EmbeddedServer
from kizuna.testing.resp import Conversation

async def visit(times):
    server = EmbeddedServer(EmbeddedSettings(folder=sys.argv[1], port=0, linger_s=0.1))
    for _ in range(times):
        running = await server.attach()
        with Conversation(running.host, running.port) as conversation:
            conversation.call("INCR", "visits")
        await asyncio.sleep(random.random() / 10)
        await server.detach(stop_if_last=random.random() < 0.8)
        await asyncio.sleep(random.random() / 10)

asyncio.run(visit(int(sys.argv[2])))
"""


class User:
    """A process of its own that uses the server."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read() == ["imported"]

    def come(self) -> None:
        self._write()

    def pids(self) -> tuple[int, int]:
        """Of the server and its keeper, once it is attached."""
        server, keeper = self._read()
        return int(server), int(keeper)

    def go(self) -> None:
        self._write()
        assert self.process.wait(timeout=120) == 0
        self._close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def _write(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def _read(self) -> list[str]:
        assert self.process.stdout
        return self.process.stdout.readline().split()

    def _close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()


class Writer(threading.Thread):
    """Writes as fast as it can, and remembers what was acknowledged."""

    def __init__(self, running: Running) -> None:
        super().__init__()
        self.acknowledged: list[str] = []
        self.done = threading.Event()
        self._address = (running.host, running.port)

    def run(self) -> None:
        while not self.done.is_set():
            try:
                with Conversation(*self._address) as conversation:
                    self._write(conversation)
            except (OSError, Refused):
                self.done.wait(0.001)

    def _write(self, conversation: Conversation) -> None:
        while not self.done.is_set():
            key = f"key {len(self.acknowledged)}"
            conversation.call("SET", key, key)
            self.acknowledged.append(key)


def embedded(folder: Path, linger_s: float = 0.2) -> EmbeddedServer:
    return EmbeddedServer(EmbeddedSettings(folder=str(folder), port=0, linger_s=linger_s))


def servers_on(folder: Path) -> list[int]:
    return [pid for pid, line in processes_on(folder).items() if line and line[0] == str(server_binary())]


@pytest.fixture
def users(server_folder: Path) -> Iterator[list[User]]:
    users = [User(server_folder) for _ in range(2)]
    yield users
    for user in users:
        if user.process.poll() is None:
            user.kill()


def test_two_that_start_at_the_same_instant_share_one_server(server_folder: Path, users: list[User]) -> None:
    for user in users:
        user.come()
    first, second = (user.pids() for user in users)

    assert first == second
    assert servers_on(server_folder) == [first[0]]
    for user in users:
        user.go()
    assert servers_on(server_folder) == []


async def test_a_killed_server_comes_back_with_all_that_was_acknowledged(server_folder: Path) -> None:
    server = embedded(server_folder)
    before = await server.attach()
    writer = Writer(before)
    writer.start()
    await eventually(lambda: len(writer.acknowledged) > 2000)

    os.kill(before.pid, signal.SIGKILL)
    killed_at, then = time.monotonic(), len(writer.acknowledged)
    await eventually(lambda: len(writer.acknowledged) > then + 100)
    took_s = time.monotonic() - killed_at
    writer.done.set()
    await asyncio.to_thread(writer.join)

    after = await server.attach()
    assert (after.port, after.keeper_pid) == (before.port, before.keeper_pid)
    assert after.pid != before.pid
    assert took_s < 2
    with Conversation(after.host, after.port) as conversation:
        found = conversation.call("MGET", *writer.acknowledged)
    assert found == [key.encode() for key in writer.acknowledged]
    await server.detach()


async def test_a_killed_keeper_takes_its_server_along_and_the_next_has_everything(server_folder: Path) -> None:
    server = embedded(server_folder)
    before = await server.attach()
    writer = Writer(before)
    writer.start()
    await eventually(lambda: len(writer.acknowledged) > 1000)

    os.kill(before.keeper_pid, signal.SIGKILL)
    await eventually(lambda: before.pid not in servers_on(server_folder))
    writer.done.set()
    await asyncio.to_thread(writer.join)

    after = await server.attach()
    assert after.keeper_pid != before.keeper_pid
    with Conversation(after.host, after.port) as conversation:
        found = conversation.call("MGET", *writer.acknowledged)
    assert found == [key.encode() for key in writer.acknowledged]
    await server.detach()


def test_when_its_only_user_is_killed_it_ends_by_itself(server_folder: Path, users: list[User]) -> None:
    user, bystander = users
    bystander.kill()
    user.come()
    server_pid, _ = user.pids()
    assert servers_on(server_folder) == [server_pid]

    user.kill()
    # The fixture waits until no process is left on the folder.


async def test_a_server_that_keeps_dying_is_given_up_and_can_be_started_again(server_folder: Path) -> None:
    server = embedded(server_folder)
    keeper_pid = (await server.attach()).keeper_pid
    for _ in range(5):
        await eventually(lambda: server.status().state == "ready", every_s=0.005)
        os.kill(server.status().pid, signal.SIGKILL)
        await eventually(lambda: server.status().state != "ready", every_s=0.001)
    await eventually(lambda: server.status().state == "failed", every_s=0.001)

    assert server.status().reason.startswith("it died 5 times within 30s, at last with signal 9, saying: ")
    assert (await server.attach()).keeper_pid != keeper_pid
    await server.detach()


async def test_garbage_in_the_record_is_mended(server_folder: Path) -> None:
    first, second = embedded(server_folder), embedded(server_folder)
    await first.attach()
    await first.detach()
    record = server_folder / "server.json"
    record.write_text("{")
    running = await first.attach()

    record.write_bytes(b"\xff[]")

    assert await second.attach() == running
    assert json.loads(record.read_text())["pid"] == running.pid
    await first.detach()
    await second.detach()


async def test_a_keeper_that_cannot_write_says_so(server_folder: Path) -> None:
    (server_folder / "valkey.conf" / "in the way").mkdir(parents=True)

    with pytest.raises(ServerNotStarted, match=r"its keeper failed: .*valkey.conf'; look at .*keeper.log"):
        await embedded(server_folder).attach()


async def test_a_keeper_that_can_say_nothing_at_all_is_given_up(server_folder: Path) -> None:
    """As on a full disk, where it cannot write what is wrong, either."""
    (server_folder / "valkey.conf" / "in the way").mkdir(parents=True)
    (server_folder / "server.json.new").mkdir()

    with pytest.raises(ServerNotStarted, match=r"its keeper ends again and again, saying: .*valkey.conf'"):
        await embedded(server_folder).attach()


async def test_it_ends_when_its_folder_is_removed(server_folder: Path) -> None:
    server, leaver = embedded(server_folder), embedded(server_folder)
    before = await server.attach()
    await leaver.attach()

    shutil.rmtree(server_folder)
    await eventually(lambda: before.pid not in servers_on(server_folder))

    await leaver.detach()
    assert (await server.attach()).pid != before.pid
    await server.detach()


async def test_a_server_that_lost_its_keeper_is_asked_to_end(server_folder: Path) -> None:
    """As on systems that do not tell a child of the death of its parent."""
    former = embedded(server_folder)
    port = (await former.attach()).port
    await former.detach()
    lock = open_lock(server_folder / "server.lock")
    fcntl.flock(lock, fcntl.LOCK_EX)
    orphan = await asyncio.create_subprocess_exec(
        server_binary(), server_folder / "valkey.conf", pass_fds=[lock], stdout=asyncio.subprocess.DEVNULL
    )
    os.close(lock)
    await eventually(lambda: _answers(port))

    server = embedded(server_folder)
    running = await server.attach()

    assert await orphan.wait() == 0
    assert servers_on(server_folder) == [running.pid]
    await server.detach()


def _answers(port: int) -> bool:
    try:
        Conversation("127.0.0.1", port).close()
    except ConnectionRefusedError:
        return False
    return True


async def test_a_keeper_that_is_told_to_end_stops_its_server_in_good_order(server_folder: Path) -> None:
    server = embedded(server_folder)
    running = await server.attach()

    os.kill(running.keeper_pid, signal.SIGTERM)
    await eventually(lambda: server.status().state == "stopped")

    assert "bye bye" in (server_folder / "server.log").read_text()
    assert (await server.attach()).pid != running.pid
    await server.detach()


def test_many_processes_that_come_and_go_never_meet_two_servers_and_leave_none(server_folder: Path) -> None:
    visitors = [subprocess.Popen([sys.executable, "-c", VISITOR, str(server_folder), "2"]) for _ in range(20)]

    assert [visitor.wait() for visitor in visitors] == [0] * 20
    assert asyncio.run(visit(embedded(server_folder))) == 41
    assert_one_after_the_other(server_folder)


async def test_a_server_that_starts_and_stops_all_the_time_loses_nothing(server_folder: Path) -> None:
    await asyncio.gather(*(visit_now_and_then(embedded(server_folder), times=6) for _ in range(3)))

    assert await visit(embedded(server_folder)) == 19
    assert assert_one_after_the_other(server_folder) > 3


async def visit_now_and_then(server: EmbeddedServer, times: int) -> None:
    for _ in range(times):
        await visit(server)
        await asyncio.sleep(random.uniform(0, 0.3))


async def visit(server: EmbeddedServer) -> int:
    running = await server.attach()
    with Conversation(running.host, running.port) as conversation:
        visits = conversation.call("INCR", "visits")
    await server.detach()
    assert isinstance(visits, int)
    return visits


def assert_one_after_the_other(folder: Path) -> int:
    """All servers of a folder write to one log: each must have said goodbye before the next one starts."""
    log = (folder / "server.log").read_text()
    lives = re.findall(r"^(\d+):M .*(just started|bye bye)", log, re.MULTILINE)
    for started, ended in zip(lives[::2], lives[1::2], strict=True):
        assert (started[1], ended[1]) == ("just started", "bye bye")
        assert started[0] == ended[0]
    return len(lives) // 2
