"""Connections are cut and stall, processes are killed, and every request ends as it should.

KIZUNA_SOAK_S says for how many seconds; a minute unless told otherwise.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import hiredis
import pytest

from kizuna.testing import ChaosProxy, ServerProcess, eventually
from kizuna.testing.leaks import assert_keys_end_as_declared
from kizuna.units.paths import claim_id, parse_path

SOAK_S = float(os.environ.get("KIZUNA_SOAK_S", "60"))
WITHIN_S = 60.0
PROGRAMS = Path(__file__).with_name("soak_programs.py")
SERVED = "detector"
CLAIM_S = 2.0
# The server's clock is read once for all that it does in one turn.
CLOCK_S = 0.01

Line = dict[str, Any]


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """Of its own: all that it does is looked at."""
    with ServerProcess(config={"notify-keyspace-events": "AKE"}) as server:
        yield server


@pytest.mark.timeout(SOAK_S + 3 * WITHIN_S)
async def test_every_request_ends_once_and_rightly_whatever_is_cut_or_killed(
    server: ServerProcess, root: str, tmp_path: Path
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201 - shown if it fails
    async with AsyncExitStack() as stack:
        observer = await stack.enter_async_context(observing(server, root))
        fleet = await stack.enter_async_context(Fleet(server, root, tmp_path, seed))
        await fleet.suffer(SOAK_S)
        await fleet.end()
    lines = [json.loads(line) for line in fleet.ledger.read_text().splitlines()]
    asked, ended = by_nonce(lines, "asks"), by_nonce(lines, "ended")

    assert_ended_once(asked, ended, fleet.killed_at)
    assert_rightly_answered(asked, ended, lines)
    assert_no_timeout_hides_an_answer(ended, observer)
    assert_never_on_two_servers_at_once(lines, fleet.killed_at, observer, root)
    assert complaints(tmp_path) == []
    # It was worth something: much was asked, and all of it happened.
    ends = Counter(line["how"] for ends in ended.values() for line in ends)
    print(f"{ends}, {len(fleet.killed_at)} kills, {fleet.cuts} cuts, {fleet.stalls} stalls")  # noqa: T201
    assert ends.keys() == {"reply", "error", "timeout"}
    assert ends["reply"] > max(ends["timeout"], 2 * SOAK_S)
    assert len(observer.written_at) >= ends["reply"] + ends["error"]
    assert observer.ended_at
    assert len(fleet.killed_at) >= SOAK_S / 15
    assert fleet.cuts >= SOAK_S / 3
    assert_keys_end_as_declared(server, root)


# -- those who suffer ---------------------------------------------------------------------------------------


class Seat:
    """One place in the fleet: whoever sits there is killed, and another takes it. Connected through its own proxy."""

    def __init__(self, program: str, arguments: Line, proxy: ChaosProxy, *, is_killed: bool) -> None:
        self.program, self.arguments, self.proxy, self.is_killed = program, arguments, proxy, is_killed
        self.process: subprocess.Popen[bytes]


class Fleet:
    """Two who serve one name, and two who ask for it; of the two who ask, one is never killed."""

    def __init__(self, server: ServerProcess, root: str, folder: Path, seed: int) -> None:
        self.ledger = folder / "ledger.jsonl"
        self.killed_at: dict[int, float] = {}
        self.cuts = self.stalls = 0
        self._server, self._root, self._folder, self._dice = server, root, folder, random.Random(seed)
        self._stack = AsyncExitStack()
        self._seats: list[Seat] = []
        self._started = 0

    async def __aenter__(self) -> Fleet:
        self.ledger.touch()
        for is_killed in (True, True):
            await self._add("serve", {"unit": SERVED}, is_killed=is_killed)
        for number, is_killed in enumerate((True, False)):
            await self._add("ask", {"unit": f"asker-{number}", "to": SERVED}, is_killed=is_killed)
        return self

    async def __aexit__(self, *_: object) -> None:
        for seat in self._seats:
            seat.process.kill()
            seat.process.wait()
        await self._stack.aclose()

    async def suffer(self, seconds: float) -> None:
        await eventually(lambda: all(map(self._works, self._seats)), within_s=WITHIN_S)
        ends_at = time.monotonic() + seconds
        killed = [[seat for seat in self._seats if seat.program == program and seat.is_killed] for program in ROLES]
        await asyncio.gather(
            *(self._disturb(seat.proxy, ends_at) for seat in self._seats),
            *(self._kill_one_of(seats, ends_at) for seats in killed),
        )

    async def end(self) -> None:
        """Those who ask first: what they wait for is still answered."""
        for program in reversed(ROLES):
            seats = [seat for seat in self._seats if seat.program == program]
            await eventually(lambda: all(map(self._works, seats)), within_s=WITHIN_S)  # noqa: B023 - awaited here
            for seat in seats:
                seat.process.terminate()
            for seat in seats:
                assert await asyncio.to_thread(seat.process.wait, WITHIN_S) == 0

    async def _add(self, program: str, arguments: Line, *, is_killed: bool) -> None:
        proxy = await self._stack.enter_async_context(ChaosProxy(self._server.host, self._server.port))
        seat = Seat(program, arguments, proxy, is_killed=is_killed)
        self._begin(seat)
        self._seats.append(seat)

    def _begin(self, seat: Seat) -> None:
        settings = {
            "store": {"url": seat.proxy.url, "reconnect_longest_s": 0.2},
            "roots": dict.fromkeys(("system", "coordination", "units"), self._root),
            "units": {"claim_s": CLAIM_S},
        }
        arguments = seat.arguments | ({"seed": self._dice.randrange(10**6)} if seat.program == "ask" else {})
        line = [seat.program, json.dumps(settings), str(self.ledger), json.dumps(arguments)]
        self._started += 1
        with (self._folder / f"{self._started}-{seat.program}.err").open("wb") as errors:
            seat.process = subprocess.Popen([sys.executable, str(PROGRAMS), *line], stderr=errors)

    async def _disturb(self, proxy: ChaosProxy, ends_at: float) -> None:
        while time.monotonic() < ends_at:
            await asyncio.sleep(self._dice.uniform(0.3, 3))
            if self._dice.random() < 0.3:
                self.stalls += 1
                proxy.stall()
                await asyncio.sleep(self._dice.uniform(0.05, 0.5))
                proxy.resume()
            else:
                self.cuts += 1
                await proxy.cut()

    async def _kill_one_of(self, seats: list[Seat], ends_at: float) -> None:
        while time.monotonic() < ends_at:
            await asyncio.sleep(self._dice.uniform(2, 6))
            seat = self._dice.choice(seats)
            # Only once it has begun: else a slow machine would see nothing but starts.
            await eventually(lambda: self._works(seat), within_s=WITHIN_S, every_s=0.1)  # noqa: B023 - awaited here
            seat.process.kill()
            seat.process.wait()
            self.killed_at[seat.process.pid] = time.time()
            self._begin(seat)

    def _works(self, seat: Seat) -> bool:
        return f'"works", "pid": {seat.process.pid},' in self.ledger.read_text()


ROLES = ("serve", "ask")


# -- who watches --------------------------------------------------------------------------------------------


class Observer:
    """What the server itself says that it did, and when, on connections of its own that nobody disturbs."""

    def __init__(self) -> None:
        self.written_at: dict[str, list[float]] = defaultdict(list)
        """By path, the server's time."""
        self.ended_at: dict[str, list[float]] = defaultdict(list)
        """Claims, when their TTL had passed, or when that was heard of."""

    def take_command(self, line: bytes) -> None:
        if found := re.match(rb'([\d.]+) \[\d+ [^]]*\] "SET" "([^"]*/(?:res|err)/[^"]*)"', line):
            self.written_at[found[2].decode()].append(float(found[1]))

    def take_event(self, event: list[Any]) -> None:
        if event[0] == b"pmessage" and event[3] == b"expired":
            self.ended_at[event[2].decode().partition(":")[2]].append(time.time())


@asynccontextmanager
async def observing(server: ServerProcess, root: str) -> AsyncIterator[Observer]:
    observer = Observer()
    async with asyncio.TaskGroup() as tasks:
        pattern = f"__keyspace@0__:{root}/{SERVED}/keep/*"
        readers = [
            tasks.create_task(reading(server, ("MONITOR",), observer.take_command)),
            tasks.create_task(reading(server, ("PSUBSCRIBE", pattern), observer.take_event)),
        ]
        yield observer
        for reader in readers:
            reader.cancel()


async def reading(server: ServerProcess, command: tuple[str, ...], take: Any) -> None:
    stream, writer = await asyncio.open_connection(server.host, server.port)
    parser = hiredis.Reader(notEnoughData=Ellipsis)
    try:
        writer.write(hiredis.pack_command(command))  # type: ignore[arg-type]  # its stub knows one-tuples only
        while data := await stream.read(65_536):
            parser.feed(data)
            while (reply := parser.gets()) is not Ellipsis:
                take(reply)
        raise AssertionError("the server closed the connection of the observer")
    finally:
        writer.close()


# -- what must be true --------------------------------------------------------------------------------------


def by_nonce(lines: list[Line], event: str) -> dict[str, list[Line]]:
    found = defaultdict(list)
    for line in lines:
        if line["event"] == event:
            found[line["nonce"]].append(line)
    return found


def assert_ended_once(asked: dict[str, list[Line]], ended: dict[str, list[Line]], killed_at: dict[int, float]) -> None:
    assert all(len(ends) == 1 for ends in ended.values())
    assert ended.keys() <= asked.keys()
    open_ = [line for nonce, (line,) in asked.items() if nonce not in ended]
    assert [line for line in open_ if line["pid"] not in killed_at] == []


def assert_rightly_answered(asked: dict[str, list[Line]], ended: dict[str, list[Line]], lines: list[Line]) -> None:
    """By the run of its own handler, and with what that was told to answer."""
    runs = {line["run"]: line["nonce"] for line in lines if line["event"] == "begins"}
    for nonce, (end,) in ended.items():
        if end["how"] == "timeout":
            continue
        assert end["got"]["nonce"] == nonce, end
        assert runs[end["got"]["run"]] == nonce, end
        assert asked[nonce][0]["plan"]["fails"] == (end["how"] == "error"), end


def assert_no_timeout_hides_an_answer(ended: dict[str, list[Line]], observer: Observer) -> None:
    hidden = []
    for (end,) in ended.values():
        if end["how"] == "timeout":
            request = end["got"]["path"]
            answers = [request.replace("/req/", f"/{status}/") for status in ("res", "err")]
            written = [at for path in answers for at in observer.written_at[path]]
            hidden += [(end, at) for at in written if at < end["deadline"] - CLOCK_S]
    assert hidden == []


def assert_never_on_two_servers_at_once(
    lines: list[Line], killed_at: dict[int, float], observer: Observer, root: str
) -> None:
    """Unless the claim of the first had ended."""
    ends = {line["run"]: line["at"] for line in lines if line["event"] == "ends"}
    begins = defaultdict(list)
    for line in lines:
        if line["event"] == "begins":
            begins[line["path"]].append(line)
    for path, runs in begins.items():
        for number, first in enumerate(runs):
            first_ends_at = ends.get(first["run"], killed_at.get(first["pid"], float("inf")))
            for second in runs[number + 1 :]:
                if second["at"] < first_ends_at:
                    assert claim_ended(path, first["at"], second["at"], observer, root), (first, second)


def claim_ended(path: str, after: float, before: float, observer: Observer, root: str) -> bool:
    caller, _, id_ = parse_path(path, root)
    claim = f"{root}/{SERVED}/keep/{claim_id(caller, id_)}"
    # It is heard of a little later than it happens.
    return any(after < at < before + CLAIM_S / 2 for at in observer.ended_at[claim])


def complaints(folder: Path) -> list[str]:
    """What the processes said that they should not have to say."""
    bad = re.compile(r"Traceback|never retrieved|never awaited|was destroyed|Exception|Error\b")
    files = sorted(folder.glob("*.err"))
    return [f"{file.name}: {line}" for file in files for line in file.read_text().splitlines() if bad.search(line)]
