"""What somebody else has put in the place of a key of ours: nothing is written half."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.memory.finding import ids, what_was_told
from tests.memory.outsiders.outsider import Outsider

from kizuna.errors import KizunaError, Refused
from kizuna.memory.memory import Memory
from kizuna.testing import eventually

Step = Callable[[], Awaitable[object]]


INDEXES_OF_AN_ITEM = (
    "memory:short:item:mine",
    "memory:short:idx:type:todo",
    "memory:short:idx:context:work",
    "memory:short:idx:priority:9",
    "memory:short:order:type:todo",
    "memory:short:order:context:work",
    "memory:short:dependents:prices",
    "memory:short:generation:model",
)
MINE: dict[str, Any] = {"context": "work", "priority": 9, "depends_on": ["prices"], "generation": "model"}


@pytest.mark.parametrize("in_the_way", INDEXES_OF_AN_ITEM)
async def test_what_cannot_be_written_whole_is_not_written_at_all(
    outsider: Outsider, m: Memory, in_the_way: str
) -> None:
    await m.create("note", 1, id="other")
    outsider.call("SET", in_the_way, "in the way")
    before = outsider.everything()
    since = await m.now_cursor()

    with pytest.raises(Refused):
        await m.create("todo", 1, id="mine", **MINE)
    with pytest.raises(Refused):
        await m.put("mine", "todo", 1, **MINE)

    assert outsider.everything() == before
    assert await what_was_told(m, since) == []


@pytest.mark.parametrize("in_the_way", INDEXES_OF_AN_ITEM)
async def test_others_that_are_written_together_are_not_harmed(
    outsider: Outsider, m: Memory, exact: Callable[[], bool], in_the_way: str
) -> None:
    outsider.call("SET", in_the_way, "in the way")
    many = [{"type": "note", "content": number, "id": f"n{number}"} for number in range(4)]
    many.insert(2, {"type": "todo", "content": "mine", "id": "mine", **MINE})

    with pytest.raises(ExceptionGroup) as refused:
        await m.create_many(many)
    assert [type(error) for error in refused.value.exceptions] == [Refused]

    outsider.call("DEL", in_the_way)
    assert await ids(m) == ["n0", "n1", "n2", "n3"]
    await eventually(exact)


@pytest.mark.parametrize("in_the_way", INDEXES_OF_AN_ITEM[1:6])
async def test_what_cannot_be_moved_whole_stays_as_it_was(outsider: Outsider, m: Memory, in_the_way: str) -> None:
    await m.create("note", 1, id="mine", context="chat", priority=3)
    outsider.call("SET", in_the_way, "in the way")
    before = outsider.everything()
    since = await m.now_cursor()

    moving = (
        m.move("mine", "work") if ":context:" in in_the_way else m.update("mine", type="todo", priority=9, content=2)
    )
    with pytest.raises(Refused):
        await moving

    assert outsider.everything() == before
    assert await what_was_told(m, since) == []
    item = await m.get("mine")
    assert item is not None
    assert (item.content, item.version) == (1, 1)


@pytest.mark.parametrize(
    "in_the_way", ["memory:ctx:idx:active", "memory:short:dependents:mine", "memory:short:changed"]
)
async def test_what_stands_in_the_way_beside_the_item_never_leaves_a_write_half_done(
    outsider: Outsider, m: Memory, exact: Callable[[], bool], in_the_way: str
) -> None:
    """Either it is refused, and nothing is changed, or it is done, and told so."""
    await m.contexts.create("Work", "job", id="work")
    await m.create("note", 1, id="mine", context="work")
    was = outsider.call("TYPE", in_the_way)
    kept = outsider.call("DUMP", in_the_way) if was != b"none" else None
    outsider.call("SET", in_the_way, "in the way")
    before = outsider.everything()
    since = await m.now_cursor()

    steps: list[Step] = [
        lambda: m.update("mine", content=2),
        lambda: m.create("note", 1, id="new", context="work"),
    ]
    for step in steps:
        try:
            await step()
        except KizunaError:
            assert outsider.everything() == before
            assert await what_was_told(m, since) == []
        before, since = outsider.everything(), await m.now_cursor()
    outsider.call("DEL", in_the_way)
    if kept is not None:
        outsider.call("RESTORE", in_the_way, 0, kept)
    await eventually(exact)


async def test_a_key_of_another_type_in_the_place_of_an_item_stops_nobody(outsider: Outsider, m: Memory) -> None:
    """Neither who reads others beside it, nor who sweeps."""
    outsider.call("SET", "memory:short:item:wrong", "no hash")
    outsider.call("SADD", "memory:short:idx:type:note", "wrong")
    outsider.call("SADD", "memory:short:idx:context:global", "wrong")
    outsider.call("ZADD", "memory:short:idx:priority:5", 1, "wrong")
    outsider.call("ZADD", "memory:short:idx:expiry", 1, "wrong")
    ours = await m.create("note", 1)

    assert await ids(m, type="note") == [ours.id]
    assert await ids(m, context="global") == [ours.id]
    assert await ids(m) == [ours.id]
    await m.create("note", "brief", id="brief", ttl_s=0.05)
    await eventually(lambda: outsider.call("ZSCORE", "memory:short:idx:expiry", "brief") is None)


async def test_a_key_of_another_type_in_the_place_of_an_item_refuses_only_itself(outsider: Outsider, m: Memory) -> None:
    outsider.call("SET", "memory:short:item:wrong", "no hash")
    await m.create("note", 1, id="right")

    steps: list[Step] = [
        lambda: m.update("wrong", content=1),
        lambda: m.touch("wrong"),
        lambda: m.create("note", 1, id="wrong"),
    ]
    for step in steps:
        with pytest.raises(KizunaError):
            await step()
    assert outsider.call("GET", "memory:short:item:wrong") == b"no hash"
    assert (await m.update("right", content=2)).content == 2


async def test_whatever_is_in_the_place_of_one_index_the_sweeper_does_the_rest(outsider: Outsider, m: Memory) -> None:
    """One sweep is for all contexts, generations and items: what is in the way of one stops none of the others."""
    for context in ("no-order", "no-index"):
        await m.contexts.create("Talk", "chat", id=context, ttl_s=0.05, active=False)
    outsider.call("SET", "memory:short:order:context:no-order", "no sorted set")
    outsider.call("SET", "memory:short:idx:context:no-index", "no set")
    outsider.call("SET", "memory:short:generation:no-index", "no sorted set")
    outsider.call("HSET", "memory:generations", "no-number", "nonsense")
    outsider.call("SADD", "memory:generations-raised", "no-number", "no-index")
    outsider.call("SET", "memory:short:idx:priority:9", "no sorted set")
    outsider.create("theirs")

    await eventually(lambda: outsider.call("EXISTS", "memory:ctx:ending") == 0, within_s=30)
    await eventually(lambda: outsider.call("EXISTS", "memory:generations-raised") == 0, within_s=30)
    # To take in what others wrote is the last thing that a sweep does.
    await eventually(lambda: outsider.call("HGET", "memory:short:item:theirs", "version") == b"1", within_s=30)
    await m.create("note", "brief", id="brief", ttl_s=0.05)
    await eventually(lambda: outsider.call("ZSCORE", "memory:short:idx:expiry", "brief") is None, within_s=30)


async def test_a_generation_whose_number_is_none_refuses_only_itself(outsider: Outsider, m: Memory) -> None:
    await m.create("note", 1, id="of-model", generation="model")
    outsider.call("HSET", "memory:generations", "model", "nonsense")

    item = await m.get("of-model")
    assert item is not None
    assert [item.id async for item in m.all(type="note")] == ["of-model"]
    assert (await m.update("of-model", content=2)).content == 2
    with pytest.raises(KizunaError):
        await m.raise_generation("model")
