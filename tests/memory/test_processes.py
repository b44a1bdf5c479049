"""Memory among processes: many that write one item, many that sweep, some that are killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hiredis
import msgspec
import pytest
from tests.memory.exactness import assert_indexes_exact

from kizuna.app import connect
from kizuna.memory.memory import Memory
from kizuna.settings import MemorySettings, Settings
from kizuna.testing import ServerProcess, eventually
from kizuna.testing.ledger import Ledger

Start = Callable[..., subprocess.Popen[bytes]]

PROCESSES, TIMES = 8, 1_000
EXPIRING, WITHIN_S = 500, 2.0


@pytest.mark.timeout(120)
async def test_eight_processes_that_change_one_item_a_thousand_times_each_are_all_counted(
    settings: Settings, start: Start, ledger: Ledger, tmp_path: Path, server: ServerProcess, root: str
) -> None:
    go = tmp_path / "go"
    async with connect(settings) as k:
        await k.memory.create("count", 0, id="count", ttl_s=3600)
        program = start("count", settings, item="count", times=TIMES, go=str(go), processes=PROCESSES)
        await eventually(lambda: len(ledger.read("ready")) == PROCESSES, within_s=60)
        go.touch()
        assert await asyncio.to_thread(program.wait, 100) == 0
        item = await k.memory.get("count")
    assert item is not None
    assert (item.content, item.version) == (PROCESSES * TIMES, PROCESSES * TIMES + 1)
    assert sum(line["times"] for line in ledger.read("counted")) == PROCESSES * TIMES
    assert_indexes_exact(server, root)


class Listener:
    """Hears a channel on a connection of its own, with none of our code, and notes when."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self.heard: list[tuple[float, dict[str, Any]]] = []

    async def listen(self, channel: str, subscribed: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection(self._server.host, self._server.port)
        parser = hiredis.Reader()
        writer.write(b"SUBSCRIBE %s\r\n" % channel.encode())
        try:
            while data := await reader.read(65_536):
                parser.feed(data)
                while (message := parser.gets()) is not False:
                    if message[0] == b"subscribe":
                        subscribed.set()
                    else:
                        self.heard.append((time.time(), msgspec.json.decode(message[2])))
        finally:
            writer.close()

    def ids(self) -> Counter[str]:
        return Counter(message["data"]["id"] for _, message in self.heard)


async def test_what_expires_is_told_once_and_in_time_however_many_sweep(
    brief: Settings, start: Start, ledger: Ledger, server: ServerProcess, root: str
) -> None:
    start("sweep", brief, processes=4)
    await eventually(lambda: len(ledger.read("sweeps")) == 4, within_s=60)
    listener, subscribed = Listener(server), asyncio.Event()
    listening = asyncio.create_task(listener.listen(f"{root}:events:memory:item:expired", subscribed))
    await asyncio.wait_for(subscribed.wait(), 20)
    # Nor does this process: it writes and reads with a memory whose sweeper sleeps.
    idle = msgspec.structs.replace(brief.memory, sweep_every_s=3600)
    async with connect(msgspec.structs.replace(brief, memory=idle)) as k:
        m, ends = k.memory, dict[str, float]()
        for first in range(0, EXPIRING, 100):
            news = [
                {"type": "brief", "content": n, "id": f"i{n}", "context": f"c{n % 9}", "ttl_s": 0.3 + (n % 100) / 100}
                for n in range(first, first + 100)
            ]
            ends |= {item.id: item.expires_at for item in await m.create_many(news)}
        await eventually(lambda: len(listener.heard) >= EXPIRING, within_s=30)
        told = [event async for event in _feed(m) if event.kind == "item:expired"]
        late = [event.at - ends[event.id] for event in told]
        assert await m.count(type="brief") == 0
    listening.cancel()

    assert listener.ids() == dict.fromkeys(ends, 1)
    assert sorted(event.id for event in told) == sorted(ends)
    assert {event.reason for event in told} == {"time"}
    # By the server's clock, which wrote both.
    assert min(late) >= 0
    assert max(late) < WITHIN_S
    assert max(message["timestamp"] / 1000 - ends[message["data"]["id"]] for _, message in listener.heard) < WITHIN_S
    assert_indexes_exact(server, root)


async def _feed(m: Memory) -> Any:
    cursor = "0"
    while True:
        page = await m.events_since(cursor, limit=1000)
        for event in page.events:
            yield event
        if not page.events:
            return
        cursor = page.cursor


async def test_when_the_one_that_sweeps_is_killed_the_next_one_does(
    brief: Settings, start: Start, ledger: Ledger, server: ServerProcess, root: str
) -> None:
    sweeper = start("sweep", brief)
    await eventually(lambda: len(ledger.read("sweeps")) == 1, within_s=60)
    idle = msgspec.structs.replace(brief.memory, sweep_every_s=3600)
    async with connect(msgspec.structs.replace(brief, memory=idle)) as k:
        m = k.memory
        await m.contexts.create("c", "t", id="c", ttl_s=2, active=False)
        for _ in range(4):
            await m.create_many(
                [{"type": "brief", "content": n, "context": "c", "ttl_s": 2} for n in range(250)]
                + [{"type": "longer", "content": n, "context": "c"} for n in range(50)]
            )
        # In the middle of it, if the machine lets us.
        await eventually(lambda: _some_have_expired(m), within_s=20, every_s=0.001)
        sweeper.kill()
        sweeper.wait()
        start("sweep", brief)

        async def nothing_is_left() -> bool:
            assert_indexes_exact(server, root)
            return await m.count(type="brief") == await m.count(type="longer") == 0

        await eventually(nothing_is_left, within_s=20)
        ends = Counter(event.id for event in [event async for event in _feed(m)] if event.kind == "item:expired")
    assert len(ends) == 1200
    assert set(ends.values()) == {1}


async def _some_have_expired(m: Memory) -> bool:
    return any(event.kind.endswith(":expired") for event in (await m.events_since("0", limit=10_000)).events)


@pytest.mark.parametrize("seed", [1, 2])
async def test_who_is_killed_in_the_middle_leaves_nothing_half_done(
    brief: Settings, start: Start, ledger: Ledger, server: ServerProcess, root: str, seed: int
) -> None:
    churning = start("churn", brief, seed=seed)
    await eventually(lambda: len(ledger.read("churned")) > 40 or churning.poll() is not None, within_s=50)
    churning.kill()
    assert churning.wait() == -signal.SIGKILL

    async with connect(brief) as k:
        m = k.memory
        # Whatever was begun in steps is gone on with by whoever sweeps next.
        await m.begin()

        def is_exact() -> bool:
            assert_indexes_exact(server, root)
            return True

        await eventually(is_exact, within_s=20)
        report = await m.verify()
        assert report.findings == []
        assert [item.id async for item in m.all()]


async def test_a_sweeper_is_there_for_whoever_remembers_and_ends_with_it(settings: Settings, root: str) -> None:
    memory = MemorySettings(item_least_s=0.05, sweep_every_s=0.1)
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        await k.memory.create("note", 1, id="a", ttl_s=0.05)
        await eventually(lambda: _told_of(k.memory, "a"), within_s=20)


async def _told_of(m: Memory, id_: str) -> bool:
    return any(event.kind == "item:expired" and event.id == id_ for event in (await m.events_since("0")).events)
