"""Death: who is silent, who is only busy, and what becomes of what the dead one held."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from kizuna.app import Kizuna
from kizuna.coordination.processes import Processes
from kizuna.coordination.processes.janitor import Janitor
from kizuna.errors import ProcessUnknown
from kizuna.service import running
from kizuna.settings import ProcessesSettings, Settings, StoreSettings
from kizuna.testing import ServerProcess, eventually

EVERY_S = 0.2
# How long a fact may take to come true on a machine that has more to do.
SOON_S = 20.0

Join = Callable[..., Awaitable[Processes]]

# Reads a line, does what it says, writes a line. Lines come to it through a thread, so that its loop stays free.
CHILD = """
import asyncio, sys, time
from kizuna.app import Kizuna
from kizuna.coordination.processes import Processes
from kizuna.settings import Settings
import msgspec

def hold_the_interpreter(seconds):
    began, numbers = time.monotonic(), 10**6
    sum(range(numbers))
    sum(range(int(numbers * seconds / (time.monotonic() - began))))

async def main(settings, process):
    k = Kizuna(msgspec.json.decode(settings, type=Settings))
    await k.store.open()
    processes = Processes(k.store, k.background, process)
    async with processes.membership(kind="child"):
        while True:
            print("ready", processes.declared_dead, flush=True)
            line = await asyncio.to_thread(sys.stdin.readline)
            verb, _, seconds = line.strip().partition(" ")
            if not verb:
                break
            {"sleep": time.sleep, "hold": hold_the_interpreter, "look": lambda _: None}[verb](float(seconds))
    await k.aclose()

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


class Child:
    """A process of the fleet that can be killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.times_declared_dead()

    def times_declared_dead(self) -> int:
        """Waits until it has done what it was told before."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready "), "it ended"
        return int(line.split()[1])

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def started(settings: Settings, process: str) -> Iterator[Child]:
    given = msgspec.json.encode(
        {"store": {"url": settings.store.url}, "roots": settings.roots, "processes": settings.processes}
    )
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, given, process], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with ExitStack() as cleanup:
        cleanup.callback(child.communicate)
        cleanup.callback(child.kill)
        yield Child(child)


def quick(settings: Settings, **options: Any) -> Settings:
    return msgspec.structs.replace(settings, processes=ProcessesSettings(heartbeat_every_s=EVERY_S, **options))


@pytest_asyncio.fixture
async def fleet() -> AsyncIterator[Join]:
    """A function that makes the `Processes` of another process: with connections and a background of its own."""
    opened: list[Kizuna] = []

    async def join(settings: Settings, process: str) -> Processes:
        k = Kizuna(settings)
        opened.append(k)
        await k.store.open()
        return Processes(k.store, k.background, process)

    yield join
    for k in opened:
        await k.aclose()


class Given:
    """A hook that notes for whom it was called; the first few times it fails."""

    def __init__(self, failures: int = 0) -> None:
        self.back: list[str] = []
        self.failures = failures

    async def __call__(self, process: str) -> None:
        self.back.append(process)
        if len(self.back) <= self.failures:
            raise RuntimeError("not now")


async def is_dead(processes: Processes, process: str) -> bool:
    return (await processes.info(process)).state == "zombie"


async def is_given_back(processes: Processes, process: str) -> bool:
    return (await processes.info(process)).given_back_at is not None


async def test_one_that_is_killed_is_dead_after_three_intervals_and_buried_once(
    settings: Settings, fleet: Join
) -> None:
    told = quick(settings)
    janitors = [await fleet(told, f"janitor-{number}") for number in range(3)]
    given = Given()
    for janitor in janitors:
        janitor.on_death(given)
    async with running(*(janitor.membership() for janitor in janitors)):
        with started(told, "child") as child:
            assert [one.id for one in await janitors[0].active()] == ["child", "janitor-0", "janitor-1", "janitor-2"]
            child.kill()
            await eventually(lambda: is_given_back(janitors[0], "child"), within_s=SOON_S)

        (zombie,) = await janitors[0].zombies()
        silence_s = (zombie.died_at or 0) - (zombie.heard_at or 0)
        assert (zombie.id, zombie.kind) == ("child", "child")
        assert 3 * EVERY_S <= silence_s < 3 * EVERY_S + 10
        assert not await janitors[0].is_alive("child")
        for janitor in janitors * 4:
            await janitor.look()
        assert given.back == ["child"]
        measures = [measure for janitor in janitors for measure in janitor.measures() if "deaths" in measure.name]
        assert [measure.value for measure in measures if measure.value] == [1]

        await janitors[1].bury("child")
        assert await janitors[0].zombies() == []
        assert (await janitors[0].info("child")).state == "dead"
        with pytest.raises(ProcessUnknown):
            await janitors[1].bury("child")


async def test_what_could_not_be_given_back_is_tried_again_and_the_rest_is_not_held_up(
    settings: Settings, fleet: Join, caplog: pytest.LogCaptureFixture
) -> None:
    told = quick(settings)
    janitor, other = await fleet(told, "janitor"), await fleet(told, "other")
    failing, fine = Given(failures=2), Given()
    for one in (janitor, other):
        one.on_death(failing)
        one.on_death(fine)
    silent = await fleet(told, "silent")
    async with running(janitor.membership(), other.membership()):
        await fall_silent(silent)
        await eventually(lambda: is_given_back(janitor, "silent"), within_s=SOON_S)

    assert failing.back == ["silent"] * 3
    assert fine.back == ["silent"] * 3
    assert [record.message for record in caplog.records].count("not given back") == 2


async def fall_silent(processes: Processes) -> None:
    """Like one that is killed: its connections are gone, and it never said goodbye."""
    await processes.register(kind="silent")
    await processes._background.aclose()
    await processes._store.aclose()


async def test_one_who_leaves_in_the_middle_of_a_burial_is_followed_by_another_at_once(
    settings: Settings, fleet: Join
) -> None:
    first, second = await fleet(quick(settings), "first"), await fleet(quick(settings), "second")
    begun, given = asyncio.Event(), Given()

    async def never_ends(process: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    first.on_death(never_ends)
    second.on_death(given)
    with started(quick(settings), "worker-1") as child:
        async with running(first.membership()):
            child.kill()
            await asyncio.wait_for(begun.wait(), 10)
    async with running(second.membership()):
        # Long before the claim of the first one would have ended by itself.
        await eventually(lambda: given.back == ["worker-1"])


async def test_one_who_buries_and_dies_of_it_is_followed_by_another(
    settings: Settings, fleet: Join, server: ServerProcess, root: str
) -> None:
    told = quick(settings)
    janitor, given = await fleet(told, "janitor"), Given()
    janitor.on_death(given)
    server.call("SADD", f"{root}:processes:zombies", "corpse")
    server.call("HSET", f"{root}:process:info:corpse", "died_at", 1)
    server.call("EXPIRE", f"{root}:process:info:corpse", 60)
    server.call("SET", f"{root}:process:burial:corpse", "one who is dead, too", "EX", 60)
    async with running(janitor.membership()):
        for _ in range(6):
            await janitor.look()
        assert given.back == []

        server.call("PEXPIRE", f"{root}:process:burial:corpse", 1)
        await eventually(lambda: given.back == ["corpse"], within_s=SOON_S)
        await eventually(lambda: is_given_back(janitor, "corpse"))

        # Once it is forgotten, it leaves the list as well.
        server.call("DEL", f"{root}:process:info:corpse")
        await eventually(lambda: not server.call("SMEMBERS", f"{root}:processes:zombies"), within_s=SOON_S)
    assert given.back == ["corpse"]


async def test_one_that_blocks_its_loop_is_alive_and_one_that_holds_its_interpreter_is_busy(
    settings: Settings, fleet: Join
) -> None:
    told = quick(settings, busy_s=60.0)
    janitor, given = await fleet(told, "janitor"), Given()
    janitor.on_death(given)
    async with running(janitor.membership()):
        with started(told, "child") as child:
            for deed in ("sleep", "hold"):
                child.tell(f"{deed} {EVERY_S * 8}")
                assert await asyncio.to_thread(child.times_declared_dead) == 0
            await eventually(lambda: is_alive(janitor, "child"), within_s=SOON_S)
            child.tell("look 0")
            assert await asyncio.to_thread(child.times_declared_dead) == 0
    assert given.back == []


async def is_alive(processes: Processes, process: str) -> bool:
    return (await processes.info(process)).state == "alive"


async def test_one_that_is_stopped_is_dead_in_the_end_and_told_so_when_it_goes_on(
    settings: Settings, fleet: Join
) -> None:
    told = quick(settings, busy_s=EVERY_S * 8)
    janitor, given = await fleet(told, "janitor"), Given()
    janitor.on_death(given)
    async with running(janitor.membership()):
        with started(told, "child") as child:
            child.signal(signal.SIGSTOP)
            await eventually(lambda: is_given_back(janitor, "child"), within_s=SOON_S)
            (zombie,) = await janitor.zombies()
            assert (zombie.died_at or 0) - (zombie.heard_at or 0) >= EVERY_S * 8

            child.signal(signal.SIGCONT)
            await eventually(lambda: is_alive(janitor, "child"), within_s=SOON_S)
            assert await janitor.zombies() == []
            child.tell("look 0")
            assert await asyncio.to_thread(child.times_declared_dead) == 1
    assert given.back == ["child"]


async def test_where_we_may_not_ask_about_connections_silence_is_death(root: str, fleet: Join) -> None:
    rules = "on >pw ~* &* +@all -client|list"
    with ServerProcess(users={"janitor": rules}) as server:
        section = StoreSettings(url=server.url)
        told = quick(msgspec.convert({"roots": {"coordination": root}}, Settings), busy_s=600.0)
        told = msgspec.structs.replace(told, store=section)
        with_rules = StoreSettings(url=server.url.replace("://", "://janitor:pw@"))
        janitor = await fleet(msgspec.structs.replace(told, store=with_rules), "janitor")
        async with running(janitor.membership()):
            with started(told, "child") as child:
                child.signal(signal.SIGSTOP)
                await eventually(lambda: is_dead(janitor, "child"), within_s=SOON_S)


async def test_nobody_dies_of_a_server_that_was_away(fresh_server: ServerProcess, root: str, fleet: Join) -> None:
    told = quick(msgspec.convert({"store": {"url": fresh_server.url}, "roots": {"coordination": root}}, Settings))
    one, other, given = await fleet(told, "one"), await fleet(told, "other"), Given()
    one.on_death(given)
    other.on_death(given)
    async with running(one.membership(), other.membership()):
        await eventually(lambda: is_alive(one, "other"))
        await asyncio.to_thread(fresh_server.stop)
        await asyncio.sleep(EVERY_S * 6)  # longer than anybody may be silent
        await asyncio.to_thread(fresh_server.start)
        beats = await eventually(lambda: beats_of(one, "other"), within_s=SOON_S)
        await eventually(lambda: heard_more(one, "other", beats + 4), within_s=SOON_S)
        assert await one.zombies() == []
        assert (one.declared_dead, other.declared_dead, given.back) == (0, 0, [])


async def test_who_looks_after_a_while_first_gives_everybody_time_to_be_heard_of(
    settings: Settings, fleet: Join
) -> None:
    """Perhaps it was the server that was away: then nobody could be heard of, and whoever comes back first looks."""
    told = quick(settings)
    janitor = await fleet(told, "janitor")
    await fall_silent(await fleet(told, "silent"))
    await eventually(lambda: is_silent(janitor, "silent"))

    assert await janitor.look() == []
    assert await janitor.look() == []
    async with running(janitor.membership()):
        await eventually(lambda: is_dead(janitor, "silent"), within_s=SOON_S)


@pytest.mark.parametrize("restarted", [False, True])
async def test_the_successor_of_the_only_one_finds_it_at_once_unless_the_server_is_another(
    settings: Settings, fleet: Join, server: ServerProcess, root: str, restarted: bool
) -> None:
    patient = msgspec.structs.replace(settings.store, timeout_s=60.0)
    told = msgspec.structs.replace(quick(settings), store=patient)
    newcomer = await fleet(told, "newcomer")
    with started(told, "child") as child:
        await eventually(lambda: server.call("EXISTS", f"{root}:processes:looked"), within_s=SOON_S)
        child.kill()
    await eventually(lambda: is_silent(newcomer, "child"), within_s=SOON_S)
    # The mercy of the very first look on this server has ended.
    server.call("HSET", f"{root}:processes:looked", "mercy_until", 0)
    if restarted:
        server.call("HSET", f"{root}:processes:looked", "server", "another")

    assert await newcomer.look() == ([] if restarted else ["child"])


async def test_one_that_is_heard_of_just_before_it_would_be_declared_dead_lives(
    settings: Settings, fleet: Join, server: ServerProcess, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, deadlines = quick(settings), f"{root}:processes:deadlines"
    janitor, late = await fleet(told, "janitor"), await fleet(told, "late")
    registration = await late.register()
    await janitor.look()
    server.call("HSET", f"{root}:processes:looked", "mercy_until", 0, "mercies", 2)
    asked = []

    async def heard_of_now(*_: object) -> bool:
        asked.append(server.call("ZADD", deadlines, "XX", 2**52, "late"))
        return False

    monkeypatch.setattr(Janitor, "_is_busy", heard_of_now)
    while not asked:
        server.call("ZADD", deadlines, "XX", 1, "late")
        assert await janitor.look() == []
    assert await janitor.is_alive("late")
    await registration.leave()


async def test_who_looks_seldom_finds_the_dead_all_the_same(settings: Settings, fleet: Join) -> None:
    """As the only one that is left, with a loop that is busy most of the time."""
    told = quick(settings)
    janitor = await fleet(told, "janitor")
    await fall_silent(await fleet(told, "silent"))
    looks = 0
    found: list[str] = []
    while not found and looks < 12:
        await asyncio.sleep(EVERY_S * 2)  # twice as long as two looks should be apart
        found = await janitor.look()
        looks += 1
    assert found == ["silent"]


async def is_silent(processes: Processes, process: str) -> bool:
    return (await processes.info(process)).state == "silent"


async def beats_of(processes: Processes, process: str) -> int:
    return (await processes.info(process)).beats or 0


async def heard_more(processes: Processes, process: str, beats: int) -> bool:
    return await beats_of(processes, process) > beats


async def test_who_takes_the_name_of_one_that_was_killed_waits_until_all_is_given_back(
    settings: Settings, fleet: Join
) -> None:
    told = quick(settings)
    given: list[str] = []
    again = await fleet(told, "child")

    async def give_back(process: str) -> None:
        assert not await again.is_alive(process)
        given.append(process)

    again.on_death(give_back)
    with started(told, "child") as child:
        child.kill()
        async with again.membership(kind="successor"):
            assert given == ["child"]
            assert (await again.info("child")).kind == "successor"
            assert await again.zombies() == []
