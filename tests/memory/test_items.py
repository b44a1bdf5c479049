"""Items: created, read, changed, ended; alone and many at once."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from tests.memory.exactness import assert_indexes_exact

from kizuna.app import Kizuna
from kizuna.errors import IllegalName, ItemExists, ItemMissing, TooLarge, VersionConflict, WrongValue
from kizuna.memory.memory import Memory
from kizuna.testing import ServerProcess, eventually

CONTENTS: list[Any] = [
    {},
    [],
    {"list": [], "dict": {}, "deep": [[[]], {"": {}}]},
    "",
    '日本語 🧠 \u0000 " \\ \u2028',
    0,
    -1,
    2**53 + 1,
    2**63 - 1,
    1794705715566123,
    0.1,
    1e300,
    True,
    False,
    None,
    [None, {"a": None}],
]


# -- created and read -----------------------------------------------------------------------------------------------


async def test_what_was_created_is_read_as_it_was(m: Memory) -> None:
    before = await m.create("note", {"text": "x"}, id="a", context="chat", priority=7, metadata={"by": "me"}, ttl_s=100)
    item = await m.get("a")

    assert item is not None
    assert item.as_dict() == before.as_dict()
    assert (item.id, item.type, item.context, item.priority) == ("a", "note", "chat", 7)
    assert (item.content, item.metadata, item.version, item.kind) == ({"text": "x"}, {"by": "me"}, 1, "item")
    assert item.ttl_s == pytest.approx(100)
    assert item.expires_at - item.created_at == pytest.approx(100, abs=0.002)
    assert item.updated_at == item.created_at
    assert (item.depends_on, item.generation, item.is_sealed, item.from_backup) == ((), None, False, False)


async def test_times_are_the_servers(k: Kizuna, m: Memory) -> None:
    earliest = await k.store.time_s()
    item = await m.create("note", "x")
    latest = await k.store.time_s()
    assert earliest - 0.001 <= item.created_at <= latest


async def test_any_content_survives(m: Memory) -> None:
    items = [await m.create("note", content, metadata={"m": content}) for content in CONTENTS]
    read = await m.get_many([item.id for item in items])

    for content, item in zip(CONTENTS, read, strict=True):
        assert item is not None
        assert item.content == content
        assert type(item.content) is type(content)
        assert item.metadata == {"m": content}


async def test_who_gives_no_id_and_no_context_gets_an_id_and_is_global(m: Memory) -> None:
    items = [await m.create("note", number) for number in range(3)]

    assert len({item.id for item in items}) == 3
    assert {(item.context, item.priority) for item in items} == {("global", 5)}
    assert [item and item.content for item in await m.get_many([item.id for item in items])] == [0, 1, 2]


async def test_what_is_not_there_is_none(m: Memory) -> None:
    await m.create("note", "x", id="a")
    assert await m.get("b") is None
    assert await m.get_many([]) == []
    found = await m.get_many(["b", "a", "b", "a"])
    assert [item and item.id for item in found] == [None, "a", None, "a"]


async def test_a_known_context_finds_its_items_only(m: Memory) -> None:
    await m.create("note", "x", id="a", context="chat")
    found = await m.get("a", context="chat")
    assert found is not None
    assert found.content == "x"


async def test_of_two_that_create_one_id_one_is_refused_and_the_first_stays(m: Memory) -> None:
    outcomes = await asyncio.gather(*(m.create("note", n, id="a") for n in range(8)), return_exceptions=True)
    created = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]

    assert len(created) == 1
    assert all(isinstance(outcome, ItemExists) for outcome in outcomes if outcome is not created[0])
    item = await m.get("a")
    assert item is not None
    assert (item.content, item.version) == (created[0].content, 1)


async def test_put_creates_and_then_replaces_all_but_the_beginning(m: Memory, server: ServerProcess, root: str) -> None:
    first = await m.put("a", "note", 1, context="chat", priority=3, metadata={"x": 1}, depends_on=["d"])
    second = await m.put("a", "fact", 2, context="work", priority=9, ttl_s=200)

    assert (first.version, second.version) == (1, 2)
    assert second.created_at == first.created_at
    read = await m.get("a")
    assert read is not None
    assert read.as_dict() == second.as_dict()
    assert (read.type, read.context, read.priority, read.content) == ("fact", "work", 9, 2)
    assert (read.metadata, read.depends_on) == ({}, ())
    assert read.expires_at - read.updated_at == pytest.approx(200, abs=0.002)
    assert_indexes_exact(server, root)


# -- changed --------------------------------------------------------------------------------------------------------


async def test_an_update_changes_what_it_names_and_nothing_else(m: Memory, server: ServerProcess, root: str) -> None:
    before = await m.create("note", [1], id="a", context="chat", priority=2, metadata={"x": 1}, depends_on=["d"])
    steps: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"content": None}, {"content": None}),
        ({"type": "fact"}, {"type": "fact"}),
        ({"priority": 10}, {"priority": 10}),
        ({"metadata": {"y": []}}, {"metadata": {"y": []}}),
        ({"metadata": {}}, {"metadata": {}}),
    ]
    expected = before.as_dict()
    for number, (change, result) in enumerate(steps, start=2):
        item = await m.update("a", **change)
        read = await m.get("a")
        assert read is not None
        assert read.as_dict() == item.as_dict()
        expected |= result | {"version": number, "updated_at": item.updated_at, "expires_at": item.expires_at}
        assert item.as_dict() == expected
        assert item.updated_at >= before.updated_at
        assert_indexes_exact(server, root)


async def test_an_update_can_give_another_life(m: Memory) -> None:
    await m.create("note", 1, id="a", ttl_s=100)
    longer = await m.update("a", ttl_s=1000)
    assert longer.expires_at - longer.updated_at == pytest.approx(1000, abs=0.002)
    shorter = await m.update("a", ttl_s=70)
    assert shorter.expires_at - shorter.updated_at == pytest.approx(70, abs=0.002)
    assert shorter.version == 3


async def test_an_update_of_what_is_not_there_writes_nothing(m: Memory, server: ServerProcess, root: str) -> None:
    for wrong in (
        m.update("a", content=1),
        m.update("a", content=1, expected_version=1),
        m.update("a", content=1, expected_version=0),
        m.touch("a"),
        m.touch("a", ttl_s=100),
        m.change("a", lambda content: content),
        m.move("a", "chat"),
        m.copy("a", "chat"),
    ):
        with pytest.raises(ItemMissing):
            await wrong
    assert server.call("KEYS", f"{root}:memory:*") == []


async def test_an_unexpected_version_is_told_and_nothing_is_written(m: Memory) -> None:
    await m.create("note", 1, id="a")
    updated = await m.update("a", content=2, expected_version=1)
    with pytest.raises(VersionConflict) as conflict:
        await m.update("a", content=3, priority=9, expected_version=1)
    with pytest.raises(VersionConflict):
        await m.delete("a", expected_version=1)

    assert (conflict.value.what, conflict.value.id) == ("item", "a")
    assert (conflict.value.expected, conflict.value.actual) == (1, 2)
    read = await m.get("a")
    assert read is not None
    assert read.as_dict() == updated.as_dict()
    assert await m.delete("a", expected_version=2)


async def test_of_many_that_expect_one_version_one_writes(m: Memory) -> None:
    await m.create("note", "first", id="a")
    updates = (m.update("a", content=n, expected_version=1) for n in range(10))
    outcomes = await asyncio.gather(*updates, return_exceptions=True)

    written = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(written) == 1
    assert sum(isinstance(outcome, VersionConflict) for outcome in outcomes) == 9
    read = await m.get("a")
    assert read is not None
    assert (read.content, read.version) == (written[0].content, 2)


async def test_a_change_is_made_from_what_is_there_whoever_writes_in_between(m: Memory) -> None:
    await m.create("note", 10, id="a")
    seen = []

    async def add_one(content: int) -> int:
        seen.append(content)
        if len(seen) == 1:
            await m.update("a", content=20)
        return content + 1

    item = await m.change("a", add_one)
    assert (item.content, item.version, seen) == (21, 3, [10, 20])
    assert (await m.change("a", lambda content: {"n": content})).content == {"n": 21}


async def test_a_hundred_changes_at_once_all_count(m: Memory) -> None:
    await m.create("count", 0, id="a")
    await asyncio.gather(*(m.change("a", lambda content: content + 1, within_s=60) for _ in range(100)))
    item = await m.get("a")
    assert item is not None
    assert (item.content, item.version) == (100, 101)


async def test_what_a_change_raises_goes_to_its_caller_and_nothing_is_written(m: Memory) -> None:
    await m.create("count", 0, id="a")

    def fail(content: int) -> int:
        raise LookupError("not this one")

    with pytest.raises(LookupError, match="not this one"):
        await m.change("a", fail)
    item = await m.get("a")
    assert item is not None
    assert (item.content, item.version) == (0, 1)


async def test_a_change_that_never_gets_its_turn_ends_with_the_conflict(m: Memory) -> None:
    await m.create("count", 0, id="a")

    async def too_slow(content: int) -> int:
        await m.update("a", content=content)
        return content + 1

    with pytest.raises(VersionConflict):
        await m.change("a", too_slow, within_s=0.3)


async def test_a_touch_gives_a_life_again_and_counts_as_no_change(m: Memory) -> None:
    item = await m.create("note", 1, id="a", ttl_s=100)
    await eventually(lambda: _is_past(m, item.created_at + 0.02))
    touched = await m.touch("a")
    assert touched.expires_at - item.expires_at >= 0.015
    assert (touched.version, touched.updated_at) == (1, item.updated_at)
    longer = await m.touch("a", ttl_s=500)
    assert longer.expires_at - item.created_at > 499
    read = await m.get("a")
    assert read is not None
    assert read.as_dict() == longer.as_dict()


async def _is_past(m: Memory, time_s: float) -> bool:
    probe = await m.create("probe", 1)
    return probe.created_at > time_s


# -- ended ----------------------------------------------------------------------------------------------------------


async def test_what_is_deleted_is_gone_with_all_that_led_to_it(m: Memory, server: ServerProcess, root: str) -> None:
    await m.create("note", 1, id="a", context="chat", priority=3, depends_on=["b", "c"], generation="model")
    assert await m.delete("a")
    assert await m.get("a") is None
    assert not await m.delete("a")
    assert not await m.delete("a", expected_version=1)
    assert_indexes_exact(server, root)
    assert (await m.list()).items == []


async def test_an_id_can_be_used_again_and_begins_anew(m: Memory) -> None:
    first = await m.create("note", 1, id="a", context="chat", priority=3)
    await m.update("a", content=2)
    await m.delete("a")
    again = await m.create("fact", 3, id="a")
    assert (again.version, again.context, again.priority) == (1, "global", 5)
    assert again.created_at >= first.created_at


# -- between contexts -----------------------------------------------------------------------------------------------


async def test_a_move_takes_the_item_along_with_everything_it_has(m: Memory, server: ServerProcess, root: str) -> None:
    before = await m.create("note", [1], id="a", context="chat", priority=3, metadata={"x": 1}, depends_on=["d"])
    moved = await m.move("a", "work")

    changed = {"context": "work", "version": 2, "updated_at": moved.updated_at}
    assert moved.as_dict() == before.as_dict() | changed
    read = await m.get("a")
    assert read is not None
    assert read.as_dict() == moved.as_dict()
    assert (await m.list(context="chat")).items == []
    assert [item.id for item in (await m.list(context="work")).items] == ["a"]
    assert_indexes_exact(server, root)


async def test_a_copy_is_an_item_of_its_own(m: Memory, server: ServerProcess, root: str) -> None:
    original = await m.create("note", [1], id="a", context="chat", priority=3, metadata={"x": 1})
    await m.update("a", content=[2])
    copy = await m.copy("a", "work")
    named = await m.copy("a", "chat", new_id="b")

    assert copy.id not in ("a", "b")
    assert (copy.context, named.context, named.id) == ("work", "chat", "b")
    assert {(item.content[0], item.type, item.priority, item.version) for item in (copy, named)} == {(2, "note", 3, 1)}
    assert copy.metadata == original.metadata
    await m.delete("a")
    assert [item and item.id for item in await m.get_many(["a", copy.id, "b"])] == [None, copy.id, "b"]
    with pytest.raises(ItemExists):
        await m.copy("b", "chat", new_id=copy.id)
    assert_indexes_exact(server, root)


# -- many at once ---------------------------------------------------------------------------------------------------


async def test_many_are_created_touched_and_deleted_at_once(m: Memory, server: ServerProcess, root: str) -> None:
    news = [
        {"type": "note", "content": n, "id": f"i{n}", "context": f"c{n % 7}", "priority": n % 10 + 1}
        for n in range(250)
    ]
    items = await m.create_many(news)
    assert [(item.id, item.content, item.context, item.priority) for item in items] == [
        (f"i{n}", n, f"c{n % 7}", n % 10 + 1) for n in range(250)
    ]
    assert_indexes_exact(server, root)
    ids = [item.id for item in items]
    await m.touch_many(ids)
    assert await m.count(type="note") == 250
    assert await m.delete_many([*ids[:200], "not-there"]) == 200
    assert await m.count(type="note") == 50
    assert [item is None for item in await m.get_many(ids)] == [True] * 200 + [False] * 50
    assert_indexes_exact(server, root)


# -- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 0},
        {"priority": 11},
        {"priority": True},
        {"priority": 2.5},
        {"ttl_s": 0},
        {"ttl_s": -1},
        {"ttl_s": math.nan},
        {"kind": "thought"},
        {"content": math.nan},
        {"content": [math.inf]},
        {"content": object()},
        {"metadata": {"x": object()}},
        {"metadata": [1]},
        {"cost_s": -1, "kind": "result"},
        {"importance": 1.5, "kind": "state"},
        {"depends_on": ["other", "a"]},
    ],
    ids=lambda wrong: "-".join(wrong),
)
async def test_what_cannot_be_is_refused_before_it_is_sent(
    m: Memory, server: ServerProcess, root: str, wrong: dict[str, Any]
) -> None:
    with pytest.raises(WrongValue):
        await m.create(**{"type": "note", "content": 1, "id": "a", **wrong})
    assert server.call("KEYS", f"{root}:memory:*") == []


@pytest.mark.parametrize("wrong", [[], (), 0, "", [("a", 1)]], ids=repr)
async def test_metadata_is_a_dictionary_and_nothing_else(m: Memory, wrong: Any) -> None:
    await m.create("note", 1, id="a", metadata={"kept": True})
    for write in (m.create("note", 1, metadata=wrong), m.update("a", metadata=wrong)):
        with pytest.raises(WrongValue, match="metadata cannot be"):
            await write
    item = await m.get("a")
    assert item is not None
    assert item.metadata == {"kept": True}


@pytest.mark.parametrize(
    "wrong",
    [{"id": ""}, {"id": "a b"}, {"id": "a*"}, {"type": "a::b"}, {"type": ""}, {"context": "{x}"}, {"id": "x" * 300}],
    ids=str,
)
async def test_names_that_cannot_stand_in_keys_are_refused(m: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(IllegalName):
        await m.create(**{"type": "note", "content": 1, **wrong})


async def test_what_is_too_large_is_refused_before_it_is_sent(m: Memory) -> None:
    await m.create("note", 1, id="a")
    for wrong in (
        m.create("note", "x" * 1024 * 1024),
        m.update("a", content="x" * 1024 * 1024),
        m.put("a", "note", 1, metadata={"x": "x" * 1024 * 1024}),
    ):
        with pytest.raises(TooLarge):
            await wrong
    item = await m.get("a")
    assert item is not None
    assert item.version == 1
