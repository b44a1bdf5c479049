"""Users that may do their work and nothing else, on real servers that hold them to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.errors import PermissionDenied
from kizuna.memory.events import Event
from kizuna.settings import CoordinationSettings, MemorySettings, Settings, StoreSettings, UnitsSettings
from kizuna.store.events import Change
from kizuna.store.inspection.backup import back_up
from kizuna.store.inspection.cleaning import remove
from kizuna.store.inspection.restore import Restore
from kizuna.survey.acl import rules_for, rules_for_operators, set_user
from kizuna.survey.known import Known
from kizuna.testing import ClusterSetup, ServerProcess, eventually
from kizuna.testing.users import signed_in


async def work(k: Kizuna) -> None:
    """Something of each part."""
    async with k.locks.hold("nightly"):
        assert [held.lock for held in await k.locks.ls()] == ["nightly"]
    registration = await k.processes.register({"kind": "test"})
    assert [process.id for process in await k.processes.active()] == [k.process]
    await k.processes.look()
    queue = k.queue("mail")
    task = await queue.push({"to": "somebody"})
    delivery = await queue.pop(wait_s=5)
    assert delivery is not None
    await delivery.done("sent")
    assert await task.result(timeout_s=5) == "sent"
    async with k.config.following(), k.flags.following():
        await k.config.set("mail:limit", 5)
        await k.flags.turn_on("debug")
        await eventually(lambda: k.config.get("mail:limit") == 5 and k.flags.is_on("debug"))
    await k.issues.checkout(7)
    await k.issues.complete(7)
    await k.stats.count("mails", "sent")
    await k.metrics.record("load", 0.5)
    await k.temp.set("note", "x")
    channel = k.channels.channel("mail", "sent")
    async with channel.subscribe() as messages:
        await channel.publish("hello")
        assert await messages.next(timeout_s=5) is not None
    await k.channels.durable("mail", "log").publish("kept")
    await registration.leave()


async def test_the_user_of_coordination_can_do_all_of_its_work(server: ServerProcess, settings: Settings) -> None:
    with signed_in([server], settings, rules_for(Known(settings), ["coordination"])) as theirs:
        async with connect(theirs) as k:
            await work(k)


async def test_the_user_of_coordination_can_work_on_a_cluster(cluster: ClusterSetup, root: str) -> None:
    settings = Settings(store=StoreSettings(url=cluster.url), coordination=CoordinationSettings(shards=6))
    with signed_in(cluster.servers, settings, rules_for(Known(settings), ["coordination"])) as theirs:
        async with connect(theirs) as k:
            await work(k)
    async with connect(settings) as k:
        await k.store.call_each_primary("FLUSHALL")


async def test_the_line_means_the_same_to_redis(redis_binary: str) -> None:
    with ServerProcess(binary=redis_binary, config={"notify-keyspace-events": "AKE"}) as server:
        settings = Settings(store=StoreSettings(url=server.url))
        with signed_in([server], settings, rules_for(Known(settings), ["coordination"])) as theirs:
            async with connect(theirs) as k:
                await work(k)
                assert [what for what, ask in FORBIDDEN.items() if not await is_refused(ask(k))] == []


FORBIDDEN: dict[str, Callable[[Kizuna], Awaitable[object]]] = {
    "somebody else's key": lambda k: k.store.call("GET", "other:key"),
    "another key below the root": lambda k: k.store.call("SET", "poppo:state:unified", 1),
    "somebody else's channel": lambda k: k.store.call("PUBLISH", "other:channel", 1),
    "all keys at once": lambda k: k.store.call("KEYS", "*"),
    "removing everything": lambda k: k.store.call("FLUSHALL"),
    "settings of the server": lambda k: k.store.call("CONFIG", "SET", "maxmemory", 0),
    "users": lambda k: k.store.call("ACL", "LIST"),
    "ending others' connections": lambda k: k.store.call("CLIENT", "KILL", "TYPE", "normal"),
    "stopping the server": lambda k: k.store.call("SHUTDOWN"),
    "a script on somebody else's key": lambda k: k.store.call("EVAL", "return redis.call('GET', 'other:key')", 0),
}


async def test_what_is_not_its_work_is_refused(server: ServerProcess, settings: Settings) -> None:
    with signed_in([server], settings, rules_for(Known(settings), ["coordination"])) as theirs:
        async with connect(theirs) as k:
            assert [what for what, ask in FORBIDDEN.items() if not await is_refused(ask(k))] == []


async def is_refused(asked: Awaitable[object]) -> bool:
    try:
        await asked
    except PermissionDenied:
        return True
    return False


async def remember(k: Kizuna) -> None:
    """Something of each part of memory."""
    m = k.memory
    async with m.watch("item:expired") as heard:
        cursor = await m.now_cursor()
        await m.contexts.create("Trip", "trip", id="t7")
        await m.create("fact", {"likes": "trains"}, id="a", context="t7", depends_on=["weather"], generation="model")
        await m.update("a", content="cars", priority=8, expected_version=1)
        await m.change("a", str.upper)
        await m.copy("a", "global", new_id="b")
        await m.move("b", "t8")
        await m.touch_many(["a", "b"])
        await m.put("c", "fact", 1, ttl_s=0.05)
        assert [item.id for item in (await m.list(type="fact", text="CAR")).items] == ["a", "b"]
        assert await m.count(context="t8") == 1
        assert await m.changed("weather") == 2
        await m.raise_generation("model")
        assert await m.contexts.delete("t7", items="leave")
        told = await heard.next(timeout_s=10)
        assert isinstance(told, Event)
        assert told.id == "c"
        assert len((await m.events_since(cursor)).events) > 10
    await m.create_many([{"type": "fact", "content": "x" * 1_000, "priority": 1} for _ in range(20)])
    assert (await m.pressure()).level == "remove"
    assert (await m.relieve()).removed > 0
    assert await m.verify(repair=True)
    assert (await m.health()).status == "healthy"


BRIEF = MemorySettings(item_least_s=0.05, budget_bytes=10_000)


async def test_the_user_of_memory_can_do_all_of_its_work_and_nothing_else(
    server: ServerProcess, settings: Settings
) -> None:
    brief = msgspec.structs.replace(settings, memory=BRIEF)
    with signed_in([server], brief, rules_for(Known(brief), ["memory"])) as theirs:
        async with connect(theirs) as k:
            await remember(k)
            assert [what for what, ask in FORBIDDEN.items() if not await is_refused(ask(k))] == []
            assert await is_refused(k.temp.set("note", "x"))


async def test_the_user_of_memory_can_work_on_a_cluster(cluster: ClusterSetup) -> None:
    settings = Settings(store=StoreSettings(url=cluster.url), memory=msgspec.structs.replace(BRIEF, shards=3))
    with signed_in(cluster.servers, settings, rules_for(Known(settings), ["memory"])) as theirs:
        async with connect(theirs) as k:
            await remember(k)
    async with connect(settings) as k:
        await k.store.call_each_primary("FLUSHALL")


async def test_the_user_of_the_store_alone_reaches_no_key_of_coordination(
    server: ServerProcess, settings: Settings, root: str
) -> None:
    with signed_in([server], settings, rules_for(Known(settings), ["store"])) as theirs:
        async with connect(theirs) as k:
            with pytest.raises(PermissionDenied):
                await k.store.call("GET", f"{root}:lock:nightly")


async def test_the_user_of_units_reaches_their_paths_and_nothing_else(
    server: ServerProcess, settings: Settings, root: str
) -> None:
    with signed_in([server], settings, rules_for(Known(settings), ["units"])) as theirs:
        async with connect(theirs) as k:
            async with k.store.events.watch(f"{root}/*/req/*") as changes:
                await k.store.call("SET", f"{root}/a/req/1", "hello", "PX", 60_000)
                change = await changes.next(timeout_s=5)
            assert isinstance(change, Change)
            assert change.key == f"{root}/a/req/1"
            assert await k.store.call("GET", f"{root}/a/req/1") == b"hello"
            with pytest.raises(PermissionDenied):
                await k.store.call("GET", f"{root}:lock:nightly")
            with pytest.raises(PermissionDenied):
                await k.store.call("SET", f"{root}/a/nope/1", "hello")


async def test_a_pattern_of_one_unit_is_not_granted_to_the_component(
    server: ServerProcess, settings: Settings, root: str
) -> None:
    with signed_in([server], settings, rules_for(Known(settings), ["units"])) as theirs:
        async with connect(theirs) as k:
            with pytest.raises(PermissionDenied):
                async with k.store.events.watch(f"{root}/a/res/*"):
                    pass


async def test_units_of_a_user_that_may_not_hear_their_patterns_call_each_other_all_the_same(
    server: ServerProcess, settings: Settings
) -> None:
    fast = msgspec.structs.replace(settings, units=UnitsSettings(poll_every_s=0.02))
    with signed_in([server], fast, rules_for(Known(fast), ["units"])) as theirs:
        async with connect(theirs) as k, k.unit("detector").serving(lambda data: data.upper()):
            assert await k.unit("caller").request("detector", b"hello") == b"HELLO"


async def test_an_operator_can_watch_and_clean_the_paths_of_units(
    server: ServerProcess, settings: Settings, root: str
) -> None:
    known = Known(settings)
    with signed_in([server], settings, rules_for_operators(known)) as theirs:
        async with connect(theirs) as k, k.store.events.watch(f"{root}/*/*/*") as changes:
            await k.store.call("SET", f"{root}/a/req/1", "hello", "PX", 60_000)
            assert isinstance(await changes.next(timeout_s=5), Change)
            assert await remove(k.store, known.patterns(f"{root}/a")) == 1


async def test_an_operator_can_back_up_restore_and_clean_and_reaches_nothing_else(
    server: ServerProcess, settings: Settings, root: str, tmp_path: Path
) -> None:
    known = Known(settings)
    with signed_in([server], settings, rules_for_operators(known)) as theirs:
        async with connect(theirs) as k:
            await k.store.call("SET", f"{root}:temp:a", 1, "EX", 60)
            await back_up(k.store, tmp_path / "b", known.patterns())
            assert await remove(k.store, known.patterns("temp")) == 1
            assert (await Restore(k.store, tmp_path / "b").run()).restored == 1
            with pytest.raises(PermissionDenied):
                await k.store.call("GET", "other:key")


def test_the_line_names_keys_of_all_shards_and_no_password() -> None:
    known = Known(Settings(coordination=CoordinationSettings(shards=8)))
    line = set_user("worker", rules_for(known, ["coordination"]), password="secret")

    assert line.startswith(
        "ACL SETUSER worker reset on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b "
    )
    assert " ~{poppo:*}:lock:* " in line
    assert " &{poppo:*}:channel:* " in line
    assert "secret" not in line
    assert "~*" not in line.split()
    assert "&*" not in line.split()


def test_patterns_that_others_cover_are_left_out() -> None:
    rules = rules_for(Known(Settings()), ["coordination"])

    assert "~poppo:queue:*" in rules
    assert "~poppo:queue:*:*" not in rules


def test_a_line_for_a_file_is_not_a_command() -> None:
    assert set_user("worker", ["+ping"], for_file=True) == "user worker on +ping"
