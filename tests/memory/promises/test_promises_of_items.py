"""Ways in which a memory like this breaks, each as the opposite that must hold here: items."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.memory.finding import ids, what_was_told
from tests.memory.promises.beginnings import everything, item_key, on

from kizuna.app import connect
from kizuna.errors import (
    IllegalName,
    ItemMissing,
    KizunaError,
    Refused,
    VersionConflict,
    WrongValue,
)
from kizuna.memory.memory import Memory
from kizuna.settings import Settings
from kizuna.testing import ServerProcess, eventually

Step = Callable[[], Awaitable[object]]


# -- indexes ---------------------------------------------------------------------------------------------------------


async def test_the_indexes_forget_an_item_that_expired(
    short: Memory, server: ServerProcess, root: str, exact: Callable[[], bool]
) -> None:
    kept = await short.create("note", "kept", context="chat")
    brief_life = {"type": "note", "content": 1, "context": "chat", "ttl_s": 0.1, "depends_on": ["prices"]}
    await short.create_many([{**brief_life, "priority": 1 + number % 10} for number in range(100)])
    assert await short.count(type="note") == 101

    await eventually(lambda: server.call("ZCARD", f"{root}:memory:short:idx:expiry") == 1)
    await eventually(exact)
    assert await ids(short, type="note") == await ids(short, context="chat") == await ids(short) == [kept.id]


async def test_reads_never_show_what_has_ended_even_if_nobody_cleans_up(settings: Settings, brief: Settings) -> None:
    rarely = msgspec.structs.replace(brief.memory, sweep_every_s=600.0)
    async with connect(msgspec.structs.replace(settings, memory=rarely)) as k:
        m = k.memory
        item = await m.create("note", 1, id="a", ttl_s=0.05)

        async def has_ended() -> bool:
            # The server counts in whole milliseconds: it is there in the one in which it ends.
            return await k.store.time_s() > item.expires_at + 0.001

        await eventually(has_ended)
        assert await m.get("a") is None
        assert await ids(m, type="note") == await ids(m, priority=5) == await ids(m) == []


async def test_an_item_is_found_where_it_is_now_and_nowhere_else(m: Memory, exact: Callable[[], bool]) -> None:
    await m.create("note", 1, id="a", context="chat", priority=3)
    await m.update("a", type="todo", priority=8)
    await m.move("a", "work")

    assert await ids(m, type="todo") == await ids(m, context="work") == await ids(m, priority=8) == ["a"]
    assert await ids(m, type="note") == await ids(m, context="chat") == await ids(m, priority=3) == []
    assert exact()
    assert await m.delete("a") is True
    assert await ids(m) == []
    assert exact()


async def test_priorities_are_listed_as_one_range_in_one_order(m: Memory) -> None:
    created = [f"n{number}" for number in range(5)]
    for id_, priority in zip(created, [9, 2, 7, 2, 10], strict=True):
        await m.create("note", 1, id=id_, priority=priority)

    assert await ids(m) == created
    assert await ids(m, priority=(2, 7)) == [created[1], created[2], created[3]]
    assert await ids(m, priority=(8, 10), newest_first=True) == [created[4], created[0]]


@pytest.mark.parametrize("priority", [0, 11, -1, 5.5, "high", True, None])
async def test_a_priority_that_is_none_is_refused_and_not_taken_for_the_usual_one(m: Memory, priority: Any) -> None:
    with pytest.raises(WrongValue):
        await m.create("note", 1, priority=priority)
    assert await ids(m) == []


# -- versions --------------------------------------------------------------------------------------------------------


async def test_what_was_just_created_can_be_updated_by_its_version(m: Memory, exact: Callable[[], bool]) -> None:
    since = await m.now_cursor()
    item = await m.create("note", "old", id="a")
    changed = await m.update("a", content="new", expected_version=item.version)

    assert changed.version == item.version + 1
    read = await m.get("a")
    assert read is not None
    assert (read.content, read.version) == ("new", 2)
    assert await what_was_told(m, since) == [("item:created", "a"), ("item:updated", "a")]
    assert exact()


async def test_of_two_who_update_the_same_version_one_is_refused(m: Memory) -> None:
    item = await m.create("note", 0, id="a")
    updates = [m.update("a", content=number, expected_version=item.version) for number in range(10)]
    outcomes = await asyncio.gather(*updates, return_exceptions=True)

    assert sum(isinstance(outcome, VersionConflict) for outcome in outcomes) == 9
    read = await m.get("a")
    assert read is not None
    assert read.version == 2


async def test_an_update_of_what_is_not_there_creates_nothing(m: Memory, server: ServerProcess, root: str) -> None:
    before = everything(server, root)
    steps: list[Step] = [
        lambda: m.update("a", content=1),
        lambda: m.update("a", content=1, expected_version=1),
        lambda: m.touch("a"),
        lambda: m.move("a", "chat"),
        lambda: m.copy("a", "chat"),
        lambda: m.change("a", lambda content: content),
    ]
    for step in steps:
        with pytest.raises(ItemMissing):
            await step()
    assert await m.delete("a") is False

    assert everything(server, root) == before


@pytest.mark.parametrize("version", ["one", "", None, 1.5])
async def test_a_version_that_is_none_never_passes_for_one(m: Memory, version: Any) -> None:
    await m.create("note", "old", id="a")
    if version is not None:
        with pytest.raises(WrongValue):
            await m.update("a", content="new", expected_version=version)
    with pytest.raises(KizunaError):
        await m.update("missing", content="new", expected_version=version)
    read = await m.get("a")
    assert read is not None
    assert read.content == "old"


async def test_a_late_update_does_not_bring_back_what_has_ended(
    short: Memory, server: ServerProcess, root: str, exact: Callable[[], bool]
) -> None:
    await short.create("note", 1, id="a", ttl_s=0.05)
    await eventually(lambda: server.call("EXISTS", item_key(root, "a")) == 0)

    late: list[Step] = [lambda: short.update("a", content=2), lambda: short.touch("a"), lambda: short.move("a", "chat")]
    for step in late:
        with pytest.raises(ItemMissing):
            await step()
    assert server.call("EXISTS", item_key(root, "a")) == 0
    await eventually(exact)


# -- whole or not at all ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_the_way", ["idx:type:todo", "idx:context:work", "idx:priority:9", "order:type:todo"])
async def test_a_write_that_is_refused_leaves_no_trace(fresh_server: ServerProcess, root: str, in_the_way: str) -> None:
    async with connect(on(fresh_server, root)) as k:
        await k.memory.create("note", 1, id="other")
        fresh_server.call("SET", f"{root}:memory:short:{in_the_way}", "in the way")
        before = everything(fresh_server, root)
        with pytest.raises(Refused):
            await k.memory.create("todo", 1, id="a", context="work", priority=9)

        assert everything(fresh_server, root) == before
        assert await what_was_told(k.memory, "0") == [("item:created", "other")]


async def test_the_end_of_an_old_item_does_not_touch_a_new_one_of_its_id(
    short: Memory, server: ServerProcess, root: str, exact: Callable[[], bool]
) -> None:
    since = await short.now_cursor()
    for number in range(10):
        id_ = f"n{number}"
        await short.create("note", "old", id=id_, context="chat", ttl_s=0.05)
        await eventually(lambda id_=id_: server.call("EXISTS", item_key(root, id_)) == 0, every_s=0.001)  # type: ignore[misc]
        new = await short.create("todo", "new", id=id_, context="work")
        assert new.version == 1

    await eventually(exact)
    assert sorted(await ids(short, type="todo")) == sorted(await ids(short, context="work"))
    assert len(await ids(short, type="todo")) == 10
    assert await ids(short, type="note") == []
    told = await what_was_told(short, since)
    assert sum(kind == "item:expired" for kind, _ in told) == 10
    # In the order in which it was: created, expired, created.
    for number in range(10):
        of_one = [kind for kind, id_ in told if id_ == f"n{number}"]
        assert of_one == ["item:created", "item:expired", "item:created"]


# -- names and keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["*", "a*", "a?b", "[ab]", "{tag}", "two words", "back\\slash", "new\nline", "", "a::b", ":a"]
)
async def test_a_name_cannot_leave_its_place_in_a_key(m: Memory, server: ServerProcess, root: str, name: str) -> None:
    steps: list[Step] = [
        lambda: m.create("note", 1, id=name) if name else m.put(name, "note", 1),
        lambda: m.create(name, 1),
        lambda: m.create("note", 1, context=name),
        lambda: m.create("note", 1, depends_on=[name]),
        lambda: m.get(name),
        lambda: m.contexts.create("Talk", name),
        lambda: m.contexts.get(name),
        lambda: m.changed(name),
        lambda: m.raise_generation(name),
    ]
    for step in steps:
        with pytest.raises((IllegalName, WrongValue)):
            await step()
    assert everything(server, root) == {}


async def test_names_with_colons_do_not_meet(m: Memory, exact: Callable[[], bool]) -> None:
    names = ["a", "a:b", "a:b:c", "b:c", "item:a", "expiry", "type:a", "global:a"]
    for name in names:
        await m.create(name, name, id=name, context=name)

    assert exact()
    for name in names:
        item = await m.get(name)
        assert item is not None
        assert item.content == name
        assert await ids(m, type=name) == await ids(m, context=name) == [name]
    for name in names:
        assert await m.delete(name) is True
        assert await m.get(name) is None
    assert exact()


async def test_memory_never_goes_through_all_keys_at_once(fresh_server: ServerProcess, root: str) -> None:
    brief_lives = {"item_least_s": 0.05, "context_least_s": 0.05, "budget_bytes": 1, "pressure_every_s": 0.1}
    async with connect(on(fresh_server, root, **brief_lives)) as k:
        await do_everything(k.memory)
        await eventually(lambda: fresh_server.call("EXISTS", item_key(root, "brief")) == 0)

    used = {command.removeprefix("cmdstat_") for command in fresh_server.info("commandstats")}
    assert "evalsha" in used
    assert used & {"keys", "flushall", "flushdb", "randomkey", "save", "monitor"} == set()


async def do_everything(m: Memory) -> None:
    await m.contexts.create("Talk", "chat", id="c")
    await m.create("note", 1, id="a", context="c", depends_on=["prices"], generation="model")
    await m.create("note", 1, id="brief", ttl_s=0.05)
    await m.create_many([{"type": "note", "content": n, "id": f"n{n}"} for n in range(5)])
    await m.update("a", content=2)
    await m.touch("a")
    await m.copy("a", "work")
    await m.move("a", "work")
    await m.get_many(["a", "n0"])
    await ids(m, type="note")
    await ids(m, text="x")
    await m.count(context="work")
    await m.changed("prices")
    await m.raise_generation("model")
    await m.contexts.list(type="chat")
    await m.contexts.delete("c")
    await m.verify(repair=True)
    await m.pressure()
    await m.relieve()
    await m.delete("n0")
    await m.events_since("0")


# -- contents --------------------------------------------------------------------------------------------------------


async def test_the_server_changes_no_number_no_list_and_no_text(m: Memory) -> None:
    content = {"list": [], "object": {}, "large": 1_794_705_715_566_123, "larger": 2**63, "nested": [[], [{}]]}
    content |= {"fraction": 0.1 + 0.2, "text": "日本語 \u2028 \\u0000", "zero": 0, "no": False, "nothing": None}
    await m.create("note", content, id="a", metadata={"same": content})
    await m.update("a", priority=7)
    await m.move("a", "chat")
    await m.touch("a")
    item = await m.copy("a", "work")

    for read in (item, await m.get("a"), (await m.list(context="chat")).items[0]):
        assert read is not None
        assert read.content == content
        assert read.metadata == {"same": content}
        assert json.dumps(read.content) == json.dumps(content)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
async def test_what_other_languages_cannot_read_is_refused(m: Memory, number: float) -> None:
    for content in (number, [number], {"a": {"b": number}}):
        with pytest.raises(WrongValue):
            await m.create("note", content)
        with pytest.raises(WrongValue):
            await m.create("note", 1, metadata={"m": content})
    assert await ids(m) == []
