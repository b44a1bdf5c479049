"""Items that somebody else wrote, and not whole, or not as they should be, confuse and harm nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.memory.finding import ids, what_was_told
from tests.memory.outsiders.outsider import Outsider, Value

from kizuna.errors import IllegalName, ItemMissing, Undecodable
from kizuna.memory.item import Item
from kizuna.memory.keys import ITEMS_OF_TYPE
from kizuna.memory.memory import Memory
from kizuna.settings import Settings
from kizuna.testing import eventually


async def test_one_that_was_cut_off_after_its_fields_is_read_and_mended_on_demand(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    """No end, and in no index: nothing but going through all keys could find it."""
    outsider.create("cut", indexed=False, ttl_s=100)
    item = await m.get("cut")
    assert item is not None
    assert item.content == {"from": "outside"}

    await m.verify(repair=True)
    await eventually(exact)
    assert await ids(m) == ["cut"]
    assert 0 < outsider.call("PTTL", "memory:short:item:cut") <= 100_000


async def test_one_that_was_cut_off_after_its_fields_is_whole_once_it_is_used(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    for id_ in ("updated", "touched", "moved", "replaced", "deleted"):
        outsider.create(id_, indexed=False)
    await m.update("updated", content=1)
    await m.touch("touched")
    await m.move("moved", "chat")
    await m.put("replaced", "todo", 1)
    assert await m.delete("deleted") is True

    await eventually(exact)
    assert sorted(await ids(m)) == ["moved", "replaced", "touched", "updated"]


async def test_one_without_an_end_gets_the_usual_one(
    outsider: Outsider, m: Memory, settings: Settings, exact: Callable[[], bool]
) -> None:
    outsider.write("a", {"id": "a", "type": "note", "content": "1"})
    outsider.call("SADD", "memory:short:idx:type:note", "a")
    assert await ids(m, type="note") == ["a"]
    await m.touch("a")

    await eventually(exact)
    assert 0 < outsider.call("PTTL", "memory:short:item:a") <= settings.memory.item_s * 1000


async def test_one_in_the_index_of_its_type_only_is_found_there_and_soon_everywhere(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    outsider.create("a", indexed=False, contextId="chat")
    outsider.call("SADD", "memory:short:idx:type:note", "a")

    assert await ids(m, type="note") == ["a"]
    await eventually(exact)
    assert await ids(m, context="chat") == await ids(m, priority=5) == ["a"]


@pytest.mark.parametrize(
    "field", ["id", "type", "content", "contextId", "priority", "createdAt", "expiresAt", "metadata"]
)
async def test_a_field_that_is_missing_or_is_nonsense_spoils_neither_item_nor_others(
    outsider: Outsider, m: Memory, field: str
) -> None:
    whole = await m.create("note", "whole")
    for number, nonsense in enumerate(("", "nonsense", "{", "-1", "1e400", "nan", "0x10", "[1]")):
        said: dict[str, Any] = {field: nonsense} if field != "type" or nonsense else {}
        outsider.create(f"n{number}", **said)
    outsider.create("without")
    outsider.call("HDEL", "memory:short:item:without", field)

    async def can_be_read(item: Item | None) -> None:
        if item is None:  # it says that it ended long ago
            assert field == "expiresAt"
            return
        assert item.version >= 1
        try:
            json.dumps(item.as_dict())
        except Undecodable:
            assert field in ("content", "metadata")

    assert whole.id in await ids(m, type="note")
    assert whole.id in await ids(m)
    for item in await m.get_many([*(f"n{number}" for number in range(8)), "without"]):
        await can_be_read(item)
    for id_ in (*(f"n{number}" for number in range(8)), "without"):
        try:
            changed = await m.update(id_, content="mended", metadata={}, priority=4, type="todo")
            assert (changed.content, changed.priority, changed.type) == ("mended", 4, "todo")
        except ItemMissing:
            assert field == "expiresAt"
    # Whatever they did, the sweeper still does its work.
    await m.create("note", "brief", id="brief", ttl_s=0.05)
    await eventually(lambda: outsider.call("ZSCORE", "memory:short:idx:expiry", "brief") is None)


@pytest.mark.parametrize("content", ["1e400", "[-1e400]", "NaN", "[" * 50_000 + "]" * 50_000, "9" * 5_000, ""], ids=len)
async def test_content_that_no_program_of_ours_can_hold_is_told_and_spoils_no_search(
    outsider: Outsider, m: Memory, content: str
) -> None:
    outsider.create("a", content=content)
    await m.create("note", "find me", id="b")
    item = await m.get("a")

    assert item is not None
    with pytest.raises(Undecodable):
        _ = item.content
    assert [found.id for found in (await m.list(type="note", text="me")).items] == ["b"]


async def test_content_that_is_no_json_is_told_when_it_is_read_and_not_before(outsider: Outsider, m: Memory) -> None:
    outsider.create("a", content="{not json")
    outsider.create("b")
    outsider.call("HSET", "memory:short:item:b", "content", b"\xff\xfe")
    items = (await m.list(type="note")).items

    assert sorted(item.id for item in items) == ["a", "b"]
    for item in items:
        with pytest.raises(Undecodable):
            _ = item.content
        assert item.raw_content in (b"{not json", b"\xff\xfe")
    assert (await m.update("a", content={"now": "json"})).content == {"now": "json"}
    with pytest.raises(Undecodable):
        await m.change("b", lambda content: content)


@pytest.mark.parametrize("priority", [0, -3, 11, 99, 5.5, "high", ""])
async def test_odd_priorities_are_kept_found_and_mended(
    outsider: Outsider, m: Memory, exact: Callable[[], bool], priority: Value
) -> None:
    ours = await m.create("note", 1)
    outsider.create("odd", priority=priority)

    assert sorted(await ids(m, type="note")) == sorted(["odd", ours.id])
    assert ours.id in await ids(m, priority=5)
    await eventually(exact)
    assert sorted(await ids(m)) == sorted(["odd", ours.id])
    assert (await m.update("odd", priority=7)).priority == 7
    assert await ids(m, priority=7) == ["odd"]
    await eventually(exact)


@pytest.mark.parametrize(
    "type_", ["two words", "a:b:c", 'quo"te', "日本語", "{tag}", "star*[a]?", "back\\slash", "new\nline"]
)
async def test_odd_names_of_types_are_read_told_of_and_ended(
    outsider: Outsider, m: Memory, exact: Callable[[], bool], type_: str
) -> None:
    since = await m.now_cursor()
    outsider.create("a", type=type_)
    async with m.watch("item:expired") as events:
        item = await m.get("a")
        assert item is not None
        assert item.type == type_
        assert await ids(m) == ["a"]
        # Some names we do not take; then that is said, and not that there is nothing.
        if ITEMS_OF_TYPE.takes(type=type_):
            assert await ids(m, type=type_) == ["a"]
        else:
            with pytest.raises(IllegalName):
                await m.list(type=type_)
        await eventually(exact)
        outsider.create("a", type=type_, ttl_s=0.1)
        async for event in events:
            if getattr(event, "id", None) == "a":
                break
    assert event.type == type_  # type: ignore[union-attr]
    assert await what_was_told(m, since) == [("item:expired", "a")]
    await eventually(exact)


@pytest.mark.parametrize("id_", ["two words", "a:b", 'quo"te', "日本語", "{tag}", "*"])
async def test_odd_ids_are_found_and_end(outsider: Outsider, m: Memory, exact: Callable[[], bool], id_: str) -> None:
    since = await m.now_cursor()
    outsider.create(id_)
    assert await ids(m, type="note") == [id_]
    outsider.create(id_, ttl_s=0.1)

    async def is_told() -> bool:
        return await what_was_told(m, since) == [("item:expired", id_)]

    await eventually(is_told)
    await eventually(exact)


async def test_an_id_that_is_no_text_keeps_nobody_from_what_else_there_is(
    outsider: Outsider, m: Memory, exact: Callable[[], bool]
) -> None:
    outsider.create("theirs")
    outsider.create("\udcff", ttl_s=1)
    outsider.create_context("talk")
    for odd in ("\udcff", "two words"):
        outsider.create_context(odd)

    assert "theirs" in await ids(m, type="note")
    assert [context.id async for context in m.contexts.all()] == ["talk"]
    await eventually(lambda: outsider.call("EXISTS", "memory:short:item:\udcff") == 0)
    await eventually(exact)
    assert await ids(m) == ["theirs"]


@pytest.mark.parametrize("field", ["content", "metadata"])
async def test_one_of_ours_that_somebody_took_a_field_from_is_read_without_it(
    outsider: Outsider, m: Memory, field: str
) -> None:
    ours = await m.create("note", "hello", metadata={"by": "Ana"})
    outsider.call("HDEL", f"memory:short:item:{ours.id}", field)

    item = await m.get(ours.id)
    assert item is not None
    assert (item.content, item.metadata) == ((None, {"by": "Ana"}) if field == "content" else ("hello", {}))
    assert item.is_sealed is False
    [listed] = (await m.list(type="note")).items
    assert json.dumps(listed.as_dict()) == json.dumps(item.as_dict())


async def test_an_item_is_what_its_key_says_whatever_it_calls_itself(outsider: Outsider, m: Memory) -> None:
    await m.create("note", "ours", id="ours")
    outsider.call("HSET", "memory:short:item:ours", "id", "another")
    outsider.create("theirs", id="another")

    for id_ in ("ours", "theirs"):
        item = await m.get(id_)
        assert item is not None
        assert item.id == id_
    assert sorted(await ids(m, type="note")) == ["ours", "theirs"]
