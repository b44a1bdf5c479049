"""`verify` proves that all indexes are exact, or says what is off; `repair` mends it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.memory.exactness import assert_indexes_exact

from kizuna.app import Kizuna, connect
from kizuna.memory.memory import Memory
from kizuna.memory.verifying import Report, verification, verify
from kizuna.settings import MemorySettings, RootsSettings, Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.keys import Roots
from kizuna.testing import ClusterSetup, ServerProcess, eventually

Damage = Callable[[Store, str], Awaitable[Any]]

# Nobody mends anything while the test looks.
ALONE = MemorySettings(sweep_every_s=3600, pressure_every_s=3600, item_least_s=0.01, context_least_s=0.01)


@pytest.fixture
async def alone(settings: Settings) -> AsyncIterator[Kizuna]:
    async with connect(msgspec.structs.replace(settings, memory=ALONE)) as k:
        yield k


async def looked_at(k: Kizuna, repair: bool = False, **how: Any) -> Report:
    roots = Roots(k.settings.roots.memory, k.settings.memory.shards)
    return await verify(k.store, roots, repair, look_again_after_s=0.01, **how)


async def fill(m: Memory) -> None:
    """Some of everything."""
    await m.contexts.create("Chat", "chat", id="c1")
    await m.contexts.create("Work", "job", id="c2", active=False)
    for number in range(12):
        await m.create("note", number, id=f"n{number}", context=f"c{number % 3}", priority=number % 10 + 1)
    await m.create("result", 1, id="r1", kind="result", depends_on=["prices", "n1"])
    await m.create("result", 2, id="r2", kind="result", generation="model")
    await m.update("n2", type="fact", priority=9)
    await m.move("n3", "c2")
    await m.delete("n4")


async def test_what_only_we_changed_is_exact(alone: Kizuna) -> None:
    await fill(alone.memory)

    report = await looked_at(alone)

    assert report
    assert report.exact
    assert report.findings == []
    assert (report.items, report.contexts) == (13, 2)
    assert report.indexes > 20
    # Seven of each item; what two of them have besides; and where contexts are: type, end, place, and one is active.
    assert report.members == 13 * 7 + 2 + 1 + 2 * 3 + 1
    assert json.loads(json.dumps(report.as_dict()))["exact"] is True


async def test_an_empty_memory_is_exact(alone: Kizuna) -> None:
    report = await looked_at(alone)

    assert report
    assert (report.items, report.contexts, report.indexes) == (0, 0, 0)


def key(root: str, rest: str) -> str:
    return f"{root}:memory:{rest}"


async def missing_from_its_type(store: Store, root: str) -> None:
    await store.call("SREM", key(root, "short:idx:type:note"), "n1")


async def missing_from_its_order(store: Store, root: str) -> None:
    await store.call("ZREM", key(root, "short:order:context:c1"), "n1")


async def missing_from_all(store: Store, root: str) -> None:
    await store.call("ZREM", key(root, "short:idx:expiry"), "n1")
    await store.call("HDEL", key(root, "short:places"), "n1")


async def a_foreign_member(store: Store, root: str) -> None:
    await store.call("SADD", key(root, "short:idx:type:fact"), "n1")


async def a_ghost(store: Store, root: str) -> None:
    await store.call("SADD", key(root, "short:idx:context:c1"), "ghost")


async def a_ghost_in_bytes(store: Store, root: str) -> None:
    await store.call("ZADD", key(root, "short:order:type:note"), 1, b"\xff\xfe ghost")


async def another_priority(store: Store, root: str) -> None:
    await store.call("ZADD", key(root, "short:idx:priority:9"), 5, "n1")


async def another_score(store: Store, root: str) -> None:
    await store.call("ZADD", key(root, "short:idx:priority:2"), 5, "n1")


async def another_end_in_the_index(store: Store, root: str) -> None:
    await store.call("ZADD", key(root, "short:idx:expiry"), 9_999_999_999_999, "n1")


async def no_end(store: Store, root: str) -> None:
    await store.call("PERSIST", key(root, "short:item:n1"))


async def another_end(store: Store, root: str) -> None:
    await store.call("PEXPIRE", key(root, "short:item:n1"), 5_000)


async def the_item_is_gone(store: Store, root: str) -> None:
    await store.call("DEL", key(root, "short:item:n1"))


async def the_place_is_another(store: Store, root: str) -> None:
    packed = msgspec.msgpack.encode(["fact", "c2", "3"])
    await store.call("HSET", key(root, "short:places"), "n1", packed)


async def the_place_is_unreadable(store: Store, root: str) -> None:
    await store.call("HSET", key(root, "short:places"), "n1", b"\xc1")


async def a_field_is_gone(store: Store, root: str) -> None:
    await store.call("HDEL", key(root, "short:item:n1"), "version")


async def the_end_is_no_number(store: Store, root: str) -> None:
    await store.call("HSET", key(root, "short:item:n1"), "expiresAt", "soon")


async def not_among_the_dependents(store: Store, root: str) -> None:
    await store.call("SREM", key(root, "short:dependents:prices"), "r1")


async def a_foreign_dependent(store: Store, root: str) -> None:
    await store.call("SADD", key(root, "short:dependents:weather"), "n1")


async def not_in_its_generation(store: Store, root: str) -> None:
    await store.call("ZREM", key(root, "short:generation:model"), "r2")


async def an_outdated_item(store: Store, root: str) -> None:
    await store.call("HSET", key(root, "generations"), "model", 4)


async def an_active_ghost(store: Store, root: str) -> None:
    await store.call("SADD", key(root, "ctx:idx:active"), "ghost")


async def a_context_of_another_type(store: Store, root: str) -> None:
    await store.call("SADD", key(root, "ctx:idx:type:job"), "c1")


async def a_context_without_a_type(store: Store, root: str) -> None:
    await store.call("SREM", key(root, "ctx:idx:type:chat"), "c1")


async def a_context_without_an_end(store: Store, root: str) -> None:
    await store.call("PERSIST", key(root, "context:c1"))


async def a_context_with_another_place(store: Store, root: str) -> None:
    await store.call("HSET", key(root, "ctx:places"), "c1", msgspec.msgpack.encode(["job", "Chat", "delete"]))


async def dependents_that_nobody_ends(store: Store, root: str) -> None:
    await store.call("SADD", key(root, "short:changed"), "prices")


async def a_raise_that_nobody_ends(store: Store, root: str) -> None:
    await store.call("SADD", key(root, "generations-raised"), "model")


async def items_of_an_ended_context(store: Store, root: str) -> None:
    rule = msgspec.msgpack.encode(["delete", 9_999_999_999_999, "deleted"])
    await store.call("HSET", key(root, "ctx:ending"), "c0", rule)


DAMAGES: dict[Damage, set[str]] = {
    missing_from_its_type: {"not in index"},
    missing_from_its_order: {"not in index"},
    missing_from_all: {"not in index"},
    a_foreign_member: {"foreign"},
    a_ghost: {"no item"},
    a_ghost_in_bytes: {"no item"},
    another_priority: {"foreign"},
    another_score: {"wrong score"},
    another_end_in_the_index: {"wrong score"},
    no_end: {"no end"},
    another_end: {"wrong end"},
    the_item_is_gone: {"no item"},
    the_place_is_another: {"wrong place"},
    the_place_is_unreadable: {"unreadable"},
    a_field_is_gone: {"incomplete"},
    the_end_is_no_number: {"incomplete"},
    not_among_the_dependents: {"not in index"},
    a_foreign_dependent: {"foreign"},
    not_in_its_generation: {"not in index"},
    an_outdated_item: {"outdated"},
    an_active_ghost: {"no context"},
    a_context_of_another_type: {"foreign"},
    a_context_without_a_type: {"not in index"},
    a_context_without_an_end: {"no end"},
    a_context_with_another_place: {"wrong place"},
    dependents_that_nobody_ends: {"left over"},
    a_raise_that_nobody_ends: {"left over"},
    items_of_an_ended_context: {"left over"},
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_what_is_off_is_told_and_repaired(
    damage: Damage, alone: Kizuna, server: ServerProcess, root: str
) -> None:
    await fill(alone.memory)
    await damage(alone.store, root)

    told = await looked_at(alone)

    assert not told
    assert {finding.kind for finding in told.findings} == DAMAGES[damage]
    assert all(finding.key.startswith(f"{root}:memory:") for finding in told.findings)
    assert all(finding.key in str(finding) for finding in told.findings)

    mended = await looked_at(alone, repair=True)

    assert mended.exact, [*map(str, mended.findings)]
    assert {finding.kind for finding in mended.repaired} == DAMAGES[damage]
    assert await looked_at(alone)
    assert_indexes_exact(server, root)


async def test_many_faults_at_once_are_repaired_in_one_go(alone: Kizuna, server: ServerProcess, root: str) -> None:
    await fill(alone.memory)
    for damage in DAMAGES:
        await damage(alone.store, root)

    report = await looked_at(alone, repair=True)

    assert report.exact, [*map(str, report.findings)]
    assert {finding.kind for finding in report.repaired} >= {"no item", "foreign", "not in index", "left over"}
    assert_indexes_exact(server, root)


async def test_what_is_in_the_way_is_told_and_left_alone(alone: Kizuna, root: str) -> None:
    await alone.memory.create("note", 1, id="a")
    index, item = key(root, "short:idx:type:other"), key(root, "short:item:b")
    await alone.store.call("SET", index, "mine")
    await alone.store.call("SET", item, "mine")

    report = await looked_at(alone, repair=True)

    assert {(f.kind, f.key, f.there, f.should) for f in report.findings} == {
        ("wrong type", index, "string", "set"),
        ("wrong type", item, "string", "hash"),
    }
    assert not any(finding.can_be_mended for finding in report.findings)
    assert report.repaired == []
    assert await alone.store.call("GET", item) == b"mine"
    await alone.store.call("DEL", index, item)


async def test_what_has_just_ended_may_wait_for_the_sweeper(alone: Kizuna) -> None:
    m = alone.memory
    await m.create("note", 1, id="a", ttl_s=0.01)
    await m.contexts.create("Chat", "chat", id="c", ttl_s=0.01)
    await eventually(lambda: _is_gone(alone))

    assert await looked_at(alone, grace_s=60)


async def _is_gone(k: Kizuna) -> bool:
    return await k.memory.get("a") is None and await k.memory.contexts.get("c") is None


async def test_what_nobody_sweeps_is_told_and_ended_by_a_repair_with_one_event(
    alone: Kizuna, server: ServerProcess, root: str
) -> None:
    m = alone.memory
    await m.create("note", 1, id="a", ttl_s=0.01)
    await m.contexts.create("Chat", "chat", id="c", ttl_s=0.01)
    await eventually(lambda: _is_gone(alone))

    told = await looked_at(alone, grace_s=0)
    assert {(finding.kind, finding.id) for finding in told.findings} == {("no item", "a"), ("no context", "c")}

    assert (await looked_at(alone, repair=True, grace_s=0)).exact
    events = (await m.events_since("0")).events
    assert [event.kind for event in events if event.kind.endswith("expired")].count("item:expired") == 1
    assert [event.kind for event in events if event.kind.endswith("expired")].count("ctx:expired") == 1
    assert_indexes_exact(server, root)


async def test_nothing_is_off_while_everybody_writes(settings: Settings, server: ServerProcess, root: str) -> None:
    memory = MemorySettings(sweep_every_s=0.05, item_least_s=0.01, context_least_s=0.01)
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        await k.memory.create("note", 1, id="first")
        writers = [asyncio.create_task(_write(k.memory, number)) for number in range(4)]
        reports = [await verify(k.store, Roots(root), look_again_after_s=0.5) for _ in range(3)]
        was_busy = not all(writer.done() for writer in writers)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await k.memory.delete("first")
        await eventually(lambda: _nothing_is_due(k))
    assert_indexes_exact(server, root)
    assert was_busy
    assert [[*map(str, report.findings)] for report in reports] == [[], [], []]
    assert all(report.items for report in reports)


async def _write(m: Memory, who: int) -> None:
    number = 0
    while True:
        number += 1
        id_ = f"w{who}-{number % 50}"
        depends_on = [f"d{number % 4}"] if number % 7 == 0 else ()
        place: dict[str, Any] = {"context": f"c{number % 5}", "priority": number % 10 + 1, "depends_on": depends_on}
        await m.put(id_, f"t{number % 3}", number, ttl_s=0.3, generation="g" if number % 5 == 0 else None, **place)
        if number % 3 == 0:
            await m.delete(id_)
        if number % 20 == 0:
            await m.changed(f"d{number % 4}")
        if number % 50 == 0:
            await m.raise_generation("g")
            await m.contexts.create("Brief", "chat", id=f"x{who}-{number}", ttl_s=0.1)


async def _nothing_is_due(k: Kizuna) -> bool:
    return not await k.store.call("EXISTS", f"{k.settings.roots.memory}:memory:short:idx:expiry")


async def test_more_than_fits_is_counted_and_repaired_in_turns(
    alone: Kizuna, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    monkeypatch.setattr(verification, "_MOST", 5)
    for number in range(12):
        await alone.store.call("SADD", key(root, "short:idx:type:note"), f"ghost{number}")

    first = await looked_at(alone, repair=True)

    assert not first
    assert (len(first.repaired), first.not_looked_at) == (5, 7)
    assert not await looked_at(alone, repair=True)
    assert await looked_at(alone, repair=True) is not None
    assert await looked_at(alone)


async def test_an_item_that_an_outsider_wrote_is_adopted_by_a_repair(alone: Kizuna, root: str) -> None:
    await write_raw(alone.store, root, "o", contextId="c")
    await alone.store.call("SADD", key(root, "short:idx:type:note"), "o")

    assert {finding.kind for finding in (await looked_at(alone)).findings} == {"incomplete"}
    assert (await looked_at(alone, repair=True)).exact
    page = await alone.memory.list(context="c")
    assert [item.id for item in page.items] == ["o"]


# -- shards -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def sharded(settings: Settings) -> AsyncIterator[Kizuna]:
    memory = msgspec.structs.replace(ALONE, shards=3)
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        yield k


async def write_raw(store: Store, root: str, id_: str, **fields: Any) -> None:
    """The hash alone; a repair adds what belongs to it."""
    now_ms = int(await store.time_s() * 1000)
    usual = {"id": id_, "type": "note", "content": "1", "priority": "5", "createdAt": now_ms, "metadata": "{}"}
    values = {**usual, "expiresAt": now_ms + 60_000, **fields}
    await store.call("HSET", key(root, f"short:item:{id_}"), *(part for pair in values.items() for part in pair))
    await store.call("PEXPIREAT", key(root, f"short:item:{id_}"), now_ms + 60_000)


async def test_an_item_in_two_shards_is_told_and_the_older_one_removed(sharded: Kizuna, root: str) -> None:
    roots = Roots(root, 3)
    other = next(name for name in ("c2", "c3", "c4", "c5") if roots.of(name) != roots.of("c1"))
    await sharded.memory.create("note", 1, id="twice", context="c1")
    # As a process that was killed in the middle of a move leaves it.
    await write_raw(sharded.store, roots.of(other), "twice", contextId=other, version=3)

    told = await looked_at(sharded)
    assert ("in two shards", "twice") in {(finding.kind, finding.id) for finding in told.findings}

    assert (await looked_at(sharded, repair=True)).exact
    assert await looked_at(sharded)
    item = await sharded.memory.get("twice")
    assert item is not None
    assert (item.context, item.version) == (other, 3)


async def test_an_item_in_the_wrong_shard_is_told(sharded: Kizuna, root: str) -> None:
    roots = Roots(root, 3)
    wrong = next(shard for shard in roots.all if shard != roots.of("c1"))
    await write_raw(sharded.store, wrong, "lost", contextId="c1", version=1)

    report = await looked_at(sharded, repair=True)

    assert [(f.kind, f.there, f.should) for f in report.findings] == [("wrong shard", wrong, roots.of("c1"))]


async def test_all_primaries_of_a_cluster_are_looked_at(cluster: ClusterSetup, root: str) -> None:
    roots = RootsSettings(system=root, coordination=root, memory=root)
    memory = msgspec.structs.replace(ALONE, shards=6)
    async with connect(Settings(store=StoreSettings(url=cluster.url), roots=roots, memory=memory)) as k:
        for number in range(30):
            await k.memory.create("note", number, id=f"n{number}", context=f"c{number}")
        for number in range(10):
            await k.memory.create("note", number, id=f"g{number}")
        all_there = await looked_at(k)
        assert (all_there.exact, all_there.items) == (True, 40)
        for shard in Roots(root, 6).all:
            await k.store.call("SADD", key(shard, "short:idx:type:note"), "ghost")

        told = await looked_at(k)

        assert {finding.root for finding in told.findings} == {*Roots(root, 6).all}
        assert (await looked_at(k, repair=True)).exact
        await k.memory.delete_many([item.id async for item in k.memory.all()])
        assert await looked_at(k)
