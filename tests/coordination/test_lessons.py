"""What went wrong when this namespace was first put to use, each as the opposite that must hold here."""

from __future__ import annotations

import ast
import asyncio
import importlib
import os
import pkgutil
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

import kizuna
from kizuna.app import Kizuna, connect
from kizuna.configuration import known_settings
from kizuna.coordination import keys as families
from kizuna.coordination.issues import Issues
from kizuna.errors import IssueLost, IssueTaken, LockLost, ProcessTaken, TaskFailed, UnsafeServer
from kizuna.service import running
from kizuna.settings import ProcessesSettings, Settings, StoreSettings
from kizuna.store.inspection.looking import look_at
from kizuna.store.keys import Key
from kizuna.survey.known import Known
from kizuna.survey.lint import problem_with
from kizuna.testing import ServerProcess, eventually
from kizuna.testing.leaks import BEHIND_MATCH

REPOSITORY = Path(__file__).parent.parent.parent
PACKAGE = REPOSITORY / "src" / "kizuna"
FAMILIES = {name: family for name, family in vars(families).items() if isinstance(family, Key)}


@pytest_asyncio.fixture
async def k(settings: Settings) -> AsyncIterator[Kizuna]:
    async with connect(settings) as k:
        yield k


@pytest_asyncio.fixture
async def other(settings: Settings) -> AsyncIterator[Kizuna]:
    """Another process, as far as the server can tell."""
    async with connect(settings) as k:
        yield k


async def use_every_part(k: Kizuna) -> None:
    """What a fleet does in a day, so that every family of the original design has its key."""
    await k.processes.register()
    await k.issues.checkout(1)
    await k.issues.checkout(2)
    await k.issues.complete(2)
    await k.queue().push({}, id="waits")
    await k.queue().push({}, id="done", priority="high")
    async with k.queue().consumer() as consumer:
        [delivery] = await consumer.take()
        await delivery.done({"ok": True})
    await k.stats.count("issues", "completed")
    await k.metrics.record("cpu", 0.5)
    await k.config.set("claude:timeout", 30)
    await k.flags.turn_on("maintenance")
    await k.temp.set("report:42", 1)
    await k.sessions.set("user-7", 1)
    await k.locks.acquire("backup:daily")


# it was switched off, and half of it was never called


def test_nothing_has_to_be_switched_on() -> None:
    """There is no second way to store things, and no setting without which a part does nothing."""
    assert [name for name in known_settings(Settings) if re.search(r"enable|backend$", name)] == []


async def test_every_group_of_keys_is_written_and_ends_after_the_original_times(k: Kizuna) -> None:
    day = await k.stats.today()
    await use_every_part(k)
    ends_s = {
        k.keys.issue(1).status: None,
        k.keys.issue(1).metadata: None,
        k.keys.issues.processing: None,
        k.keys.issues.completed_today: 86_400,
        k.keys.process(k.process).info: 1_800,
        k.keys.process(k.process).heartbeat: 1_800,
        k.keys.processes.active: None,
        k.keys.queue("normal"): None,
        k.keys.task("waits").info: None,
        k.keys.task("done").result: 3_600,
        k.keys.stats("issues", "daily", day): 604_800,
        k.keys.stats("issues", "hourly"): 604_800,
        k.keys.metric("cpu").current: 604_800,
        k.keys.metric("cpu").history: 604_800,
        k.keys.config("claude", "timeout"): None,
        k.keys.flag("maintenance"): None,
        k.keys.lock("backup", "daily"): 10,
        k.keys.temp("report", 42): 3_600,
        k.keys.session("user-7"): 2_592_000,
    }
    found = {facts.key.decode(): facts.ttl_ms for facts in await look_at(k.store, [key.encode() for key in ends_s])}

    assert found.keys() == ends_s.keys()
    assert {key for key, ttl_ms in found.items() if ttl_ms is None} == {key for key, s in ends_s.items() if s is None}
    # "Today" ends at midnight, and all others after their time.
    for key, within_s in ends_s.items():
        least_s = 0 if within_s is None or key == k.keys.issues.completed_today else within_s - 60
        assert within_s is None or least_s * 1000 <= (found[key] or 0) <= within_s * 1000, key


def test_every_declared_family_and_every_time_is_used() -> None:
    """Named somewhere in the code that runs, beside where it is declared and where its name is spelt for people."""
    sources = [path for path in PACKAGE.rglob("*.py") if path.name not in ("keys.py", "namespace.py", "sections.py")]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in sources)))
    times = {name.removeprefix("kept.") for name in known_settings(Settings) if name.startswith("kept.")}

    assert FAMILIES.keys() - words == set()
    assert times - words == set()


# the namespace drifted apart into five


async def test_every_other_spelling_of_the_namespace_is_noticed(k: Kizuna, settings: Settings, root: str) -> None:
    strays = [f"{root}:state:issues", f"{root}:project:7:issue:1", f"{root}builder:queue:x", f"{root}:events"]
    for key in strays:
        await k.store.call("SET", key, "x", "EX", 60)
    known = Known(settings)
    found = {facts.key.decode(): facts for facts in await look_at(k.store, [key.encode() for key in strays])}
    problems = {key: problem_with(known, facts, known.find(facts.key)) for key, facts in found.items()}
    await k.store.call("DEL", *strays)

    assert {key: finding and finding.problem for key, finding in problems.items()} == {
        key: "beside a root" if "builder" in key else "undeclared" for key in strays
    }


def test_no_code_spells_a_key_by_hand() -> None:
    beginnings = {family.pattern.partition("<")[0] for family in FAMILIES.values() if "<" in family.pattern}
    by_hand = re.compile(rf"^:?({'|'.join(map(re.escape, sorted(beginnings)))})|poppo:")
    spelt = {
        f"{path.relative_to(PACKAGE)}: {text}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "keys.py"
        for text in texts_in(ast.parse(path.read_text()))
        if by_hand.search(text)
    }
    assert spelt == set()


def texts_in(tree: ast.AST) -> Iterator[str]:
    """Every text that is a value, and no docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_module_can_be_imported() -> None:
    """Once, a factory asked for files that were not there, and nobody had ever called it."""
    names = [module.name for module in pkgutil.walk_packages(kizuna.__path__, "kizuna.")]

    assert len(names) > 100
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)


# locks were let go by whoever came along, and checkout asked nobody


async def test_a_lock_is_released_by_its_holder_only(k: Kizuna, other: Kizuna) -> None:
    held = await k.locks.acquire("issue:123", lease_s=5)
    await k.store.call("DEL", k.keys.lock("issue", 123))
    taken = await other.locks.acquire("issue:123")
    with pytest.raises(LockLost):
        await held.release()

    assert await other.store.call("EXISTS", k.keys.lock("issue", 123)) == 1
    await taken.release()
    assert await other.store.call("EXISTS", k.keys.lock("issue", 123)) == 0


async def test_a_lock_is_held_for_as_long_as_the_work_takes(k: Kizuna, other: Kizuna) -> None:
    async with k.locks.hold("issue:123", lease_s=3) as held:
        await asyncio.sleep(3.5)
        assert [holder.process for holder in await other.locks.ls()] == [k.process]
        await held.verify()


async def test_of_many_who_check_out_one_gets_it_and_only_that_one_can_end_it(k: Kizuna) -> None:
    team = [Issues(k.store, f"worker-{number}") for number in range(20)]
    outcomes = await asyncio.gather(*(one.checkout(123) for one in team), return_exceptions=True)
    [winner] = [one for one, outcome in zip(team, outcomes, strict=True) if not isinstance(outcome, Exception)]

    assert sum(isinstance(outcome, IssueTaken) for outcome in outcomes) == 19
    for one in team:
        if one is not winner:
            with pytest.raises(IssueLost):
                await one.complete(123)
    await winner.complete(123)


# each process read what it had read once


async def test_what_another_process_writes_is_read_at_once(k: Kizuna, other: Kizuna) -> None:
    for status in ("pending", "blocked", "ready"):
        await other.issues.set_status(123, status)
        assert await k.issues.status(123) == status
    await other.issues.checkout(123, expect=("ready",))
    assert await k.issues.processing() == ["123"]
    assert await k.config.read("claude:timeout", None) is None
    await other.config.set("claude:timeout", 45)
    assert await k.config.read("claude:timeout") == 45


async def test_what_is_read_from_memory_follows_the_server(k: Kizuna, other: Kizuna) -> None:
    async with k.config.following():
        await other.config.set("claude:timeout", 45)
        await eventually(lambda: k.config.get("claude:timeout", None) == 45)
        await other.store.call("SET", k.keys.config("claude", "timeout"), "60")
        await eventually(lambda: k.config.get("claude:timeout", None) == 60)


# the dead were noticed after half an hour, by a pid of another machine


def test_the_dead_are_noticed_in_seconds_although_the_key_of_the_heartbeat_lives_for_half_an_hour() -> None:
    assert Settings().kept.heartbeat_s == 1_800
    assert 3 * Settings().processes.heartbeat_every_s <= 5


def test_nobody_asks_the_machine_whether_a_process_lives() -> None:
    """Its pid means nothing on another host, and another program may have it by now."""
    asking = [path for path in (PACKAGE / "coordination").rglob("*.py") if "os.kill(" in path.read_text()]
    assert asking == []


async def test_one_that_is_silent_is_dead_although_its_pid_is_alive(k: Kizuna, settings: Settings) -> None:
    every_s = 0.1
    quick = msgspec.structs.replace(settings, processes=ProcessesSettings(heartbeat_every_s=every_s))
    async with connect(quick) as watcher:
        await watcher.store.call("SADD", k.keys.processes.active, "elsewhere")
        await watcher.store.call("HSET", k.keys.process("elsewhere").info, "pid", os.getpid())
        await watcher.store.call("EXPIRE", k.keys.process("elsewhere").info, 60)
        async with running(watcher.processes.membership()):
            await eventually(lambda: is_zombie(watcher, "elsewhere"))
        await watcher.processes.bury("elsewhere")


async def is_zombie(k: Kizuna, process: str) -> bool:
    return process in [zombie.id for zombie in await k.processes.zombies()]


async def test_a_heartbeat_needs_nobody_in_between(k: Kizuna) -> None:
    """No ambassador that may be down: who is alone with the server is heard of all the same."""
    registration = await k.processes.register()
    ttl_s = await k.store.call("TTL", k.keys.process(k.process).heartbeat)
    await registration.leave()

    assert 1_700 < ttl_s <= 1_800


async def test_one_name_runs_once(k: Kizuna, other: Kizuna) -> None:
    """Once there were hundreds of runners of the same job."""
    registration = await k.processes.register(id="nightly")
    with pytest.raises(ProcessTaken):
        await other.processes.register(id="nightly")
    await registration.leave()


# two got the same task, and saving a queue wrote all of it anew


async def test_no_two_consumers_get_one_task_and_none_is_lost(k: Kizuna, other: Kizuna) -> None:
    await k.queue().push_many(range(100))
    async with k.queue().consumer() as one, other.queue().consumer() as another:
        taken = Counter[object]()
        while sum(taken.values()) < 100:
            for deliveries in await asyncio.gather(one.take(most=3), another.take(most=3)):
                taken.update(delivery.payload for delivery in deliveries)
                for delivery in deliveries:
                    await delivery.done()

    assert taken == Counter(range(100))


async def test_pushing_leaves_what_others_have_pushed(k: Kizuna, other: Kizuna) -> None:
    await asyncio.gather(*(one.queue().push(number) for number in range(20) for one in (k, other)))

    assert (await k.queue().depth()).normal == 40
    assert await k.store.call("LLEN", k.keys.queue()) == 40


async def test_what_fails_again_and_again_is_given_up(k: Kizuna) -> None:
    """Once, retries were pushed for ever."""
    task = await k.queue().push("hopeless", attempts=2)
    async with k.queue().consumer() as consumer:
        for _ in range(2):
            [delivery] = await consumer.take(wait_s=20)
            await delivery.fail("it never works", retry_in_s=0.01)

    with pytest.raises(TaskFailed):
        await task.result(timeout_s=5)
    assert (await k.queue().depth()).waiting == 0


# tests, and tools, wiped what was on the server


async def test_nothing_ever_asks_for_all_keys_or_wipes_the_server(fresh_server: ServerProcess) -> None:
    async with connect(Settings(store=StoreSettings(url=fresh_server.url))) as k:
        await use_every_part(k)
        await asyncio.gather(k.processes.active(), k.stats.categories(), k.metrics.names(), k.queues.groups())
        assert {issue async for issue, _ in k.issues.all()} == {"1", "2"}
        used = (await k.store.call("INFO", "commandstats")).decode().lower()

    assert "cmdstat_scan:" in used
    assert re.findall("cmdstat_(keys|flushall|flushdb|randomkey):", used) == []


def test_tests_have_a_server_and_a_root_of_their_own(server: ServerProcess, settings: Settings, root: str) -> None:
    """Not the one that a developer happens to run, and nothing that a neighbour looks at."""
    assert settings.store.url == server.url
    assert server.port not in (6379, Settings().embedded.port)
    assert {name.removesuffix(BEHIND_MATCH) for name in msgspec.structs.astuple(settings.roots)} == {root}
    assert root != Settings().roots.coordination


async def test_a_server_that_throws_keys_away_is_refused() -> None:
    """It was advised to let the server evict whatever it likes: locks and tasks, for instance."""
    evicting = {"maxmemory": "64mb", "maxmemory-policy": "allkeys-lru"}
    with ServerProcess(config=evicting) as server, pytest.raises(UnsafeServer, match="allkeys-lru"):
        await connect(Settings(store=StoreSettings(url=server.url)))
