"""Users that may do their work and nothing else, on real servers that hold them to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.errors import PermissionDenied
from kizuna.match import Assignment, Backend, Match, Pool, Profile, Waiting
from kizuna.match.giving_back import backend_name, give_back
from kizuna.memory.events import Event
from kizuna.service import running
from kizuna.settings import (
    CoordinationSettings,
    MatchSettings,
    MemorySettings,
    RootsSettings,
    Settings,
    StoreSettings,
    UnitsSettings,
)
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
            assert await remove(k.store, known.wanted(f"{root}/a")) == 1


async def test_an_operator_can_back_up_restore_and_clean_and_reaches_nothing_else(
    server: ServerProcess, settings: Settings, root: str, tmp_path: Path
) -> None:
    known = Known(settings)
    with signed_in([server], settings, rules_for_operators(known)) as theirs:
        async with connect(theirs) as k:
            await k.store.call("SET", f"{root}:temp:a", 1, "EX", 60)
            await back_up(k.store, tmp_path / "b", known.wanted())
            assert await remove(k.store, known.wanted("temp")) == 1
            assert (await Restore(k.store, tmp_path / "b").run()).restored == 1
            with pytest.raises(PermissionDenied):
                await k.store.call("GET", "other:key")


# -- matchmaking --------------------------------------------------------------------------------------------


def pairs(waiting: Waiting) -> Iterator[Match]:
    for pair in zip(waiting.tickets[::2], waiting.tickets[1::2], strict=False):
        yield Match(pair)


def a_backend(k: Kizuna) -> Backend:
    backend = k.match.backend(lambda matches: [match.assigned("a:1") for match in matches])
    backend.add(Profile("1v1", [Pool("everyone")]), pairs)
    return backend


async def match(k: Kizuna) -> None:
    """Something of each part of matchmaking."""
    mm = k.match
    tickets = [await mm.create_ticket(tags=["a"]) for _ in range(5)]
    waiting = [asyncio.create_task(mm.assignment(ticket.id, timeout_s=20)) for ticket in tickets[:4]]
    await eventually(lambda: mm.watchers.number == 4)
    await eventually(lambda: not mm.watchers.is_polling)
    assert (await a_backend(k).tick()).assigned == 4
    assert [(await one).connection for one in waiting] == ["a:1"] * 4
    left = await mm.query_tickets(Pool("everyone"))
    assert len(left) == 1
    await mm.release_tickets([left[0].id])
    await mm.deindex_ticket(left[0].id)
    await mm.delete_ticket(left[0].id)
    backfill = await mm.create_backfill(tags=["a"])
    assert [one.id for one in await mm.query_backfills(Pool("everyone", tags=["a"]))] == [backfill.id]
    await mm.acknowledge_backfill(backfill.id, Assignment("a:1"))
    await mm.delete_backfill(backfill.id)


MATCHES_IN_MANY_WAYS = {
    "by scripts": MatchSettings(),
    "under the lock": MatchSettings(guard="lock"),
    "in shards": MatchSettings(shards=2),
}


@pytest.mark.parametrize("how", MATCHES_IN_MANY_WAYS)
@pytest.mark.parametrize("prefix", ["", "mm1:", "mm1"])
async def test_the_user_of_matchmaking_can_do_all_of_its_work_and_nothing_else(how: str, prefix: str) -> None:
    with ServerProcess(config={"notify-keyspace-events": "AKE"}) as server:
        settings = Settings(
            store=StoreSettings(url=server.url), roots=RootsSettings(match=prefix), match=MATCHES_IN_MANY_WAYS[how]
        )
        with signed_in([server], settings, rules_for(Known(settings), ["match"])) as theirs:
            async with connect(theirs) as k:
                await match(k)
                assert [what for what, ask in FORBIDDEN.items() if not await is_refused(ask(k))] == []
                for key in ("session", "assign:homework", "other", "mm_sessions", "poppo:lock:a"):
                    assert await is_refused(k.store.call("GET", key)), key


async def test_an_operator_reaches_tickets_without_a_prefix_and_nobody_elses_keys(tmp_path: Path) -> None:
    with ServerProcess(config={"notify-keyspace-events": "AKE"}) as server:
        settings = Settings(store=StoreSettings(url=server.url))
        known = Known(settings)
        with signed_in([server], settings, rules_for_operators(known)) as theirs:
            async with connect(theirs) as k:
                ticket = await k.match.create_ticket()
                server.call("SET", "session", "somebody else's")
                assert (await back_up(k.store, tmp_path / "b", known.wanted())).keys == 2
                assert await remove(k.store, known.wanted("*")) == 2
                assert (await Restore(k.store, tmp_path / "b").run()).restored == 2
                assert (await k.match.get_ticket(ticket.id)).id == ticket.id
                assert await is_refused(k.store.call("GET", "session"))


async def test_who_runs_a_backend_needs_coordination_besides(server: ServerProcess, settings: Settings) -> None:
    with signed_in([server], settings, rules_for(Known(settings), ["match", "coordination"])) as theirs:
        async with connect(theirs) as k, running(a_backend(k)):
            first, second = await k.match.create_ticket(), await k.match.create_ticket()
            assert (await k.match.assignment(first.id, timeout_s=20)).connection == "a:1"
            assert (await k.match.assignment(second.id, timeout_s=20)).connection == "a:1"


async def test_a_member_of_the_fleet_that_has_no_business_with_tickets_can_bury_the_dead(
    server: ServerProcess, settings: Settings
) -> None:
    """Also one whose rules are older than matchmaking; what the dead one held then waits for its time."""
    with signed_in([server], settings, rules_for(Known(settings), ["coordination"])) as theirs:
        async with connect(settings) as matching, connect(theirs) as k:
            ticket, shard = await matching.match.create_ticket(), matching.match.shards[0]
            held_by = backend_name("somebody-who-died", "1")
            await matching.store.call("HSET", shard.backends, held_by, "")
            await matching.store.call("EXPIRE", shard.backends, 60)
            await shard.take([ticket.id], held_by, begins=True)
            await give_back(k.store, "somebody-who-died")
            assert list(await shard.pending()) == [ticket.id]

            await give_back(matching.store, "somebody-who-died")
            assert await shard.pending() == {}


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
