"""The copy says what the server says."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.memory.backup.conftest import backup_of

from kizuna.errors import WrongValue
from kizuna.memory.backup.copying import ItemCopy, ItemEnded
from kizuna.memory.context import ContextQuery
from kizuna.memory.item import Item, More
from kizuna.memory.keepers import Keeper
from kizuna.memory.memory import Memory
from kizuna.memory.query import Query
from kizuna.testing import eventually

QUERIES: list[dict[str, Any]] = [
    {},
    {"type": "a"},
    {"context": "c1"},
    {"type": "b", "context": "c2"},
    {"priority": (3, 6)},
    {"type": "a", "priority": (9, 9)},
    {"text": "7"},
    {"text": "ÄPFEL"},
    {"context": "c1", "text": "birnen"},
    {"type": "nothing"},
]


async def ids_page_by_page(keeper: Keeper, **having: Any) -> list[str]:
    ids, cursor = list[str](), ""
    while True:
        page = await keeper.list(Query(**having, limit=7, cursor=cursor))
        ids += [item.id for item in page.items]
        cursor = page.cursor
        if not cursor:
            return ids


async def test_lists_have_the_same_order_filters_and_pages_as_those_of_the_server(m: Memory) -> None:
    dice = random.Random(1)
    for number in range(60):
        await m.create(
            dice.choice("ab"),
            dice.choice([number, {"fruit": "Äpfel"}, ["Birnen", number]]),
            id=f"{dice.choice('zyxäA')}{number}",
            context=dice.choice(["c1", "c2", "global"]),
            priority=dice.randint(1, 10),
            ttl_s=dice.choice([100, 200, 300]),
        )
    now = (await m.list(limit=1)).items[0].created_at
    windows = [
        {"ends_after": now + 150},
        {"ends_before": now + 250},
        {"ends_after": now + 150, "ends_before": now + 250},
    ]
    copy = backup_of(m).keeper

    for having in QUERIES + windows:
        for newest_first in (False, True):
            there = await ids_page_by_page(m.server, **having, newest_first=newest_first)
            here = await ids_page_by_page(copy, **having, newest_first=newest_first)
            assert here == there, having
    assert len(await ids_page_by_page(copy)) == 60
    with pytest.raises(WrongValue):
        await copy.list(Query(cursor="nonsense"))


async def test_items_are_the_same_as_those_of_the_server(m: Memory) -> None:
    await m.create("a", {"deep": [1, None, "ä"]}, id="plain", metadata={"by": "me"}, priority=9)
    await m.create("b", 1, id="result", kind="result", cost_s=3.5, depends_on=["x", "y"], generation="model")
    await m.update("plain", content="changed", ttl_s=1000)
    ids = ["plain", "result", "missing"]

    theirs, ours = await m.server.read(ids), await backup_of(m).keeper.read(ids)

    assert ours[2] is None
    for there, here in zip(theirs[:2], ours[:2], strict=True):
        assert there is not None
        assert here is not None
        assert here.as_dict() == there.as_dict() | {"from_backup": True}
        assert here.ttl_s == there.ttl_s


async def test_contexts_are_the_same_as_those_of_the_server(m: Memory) -> None:
    for number in range(12):
        await m.contexts.create(
            f"n{number}", "ab"[number % 2], id=f"c{number}", active=number % 3 > 0, metadata={"n": 1}
        )
    copy = backup_of(m).keeper

    for query in (ContextQuery(), ContextQuery(type="a"), ContextQuery(is_active=False), ContextQuery(limit=5)):
        theirs, ours = await m.server.list_contexts(query), await copy.list_contexts(query)
        assert [one.as_dict() | {"from_backup": True} for one in theirs.contexts] == [
            one.as_dict() for one in ours.contexts
        ]
        assert ours.cursor == theirs.cursor
    rest = await copy.list_contexts(ContextQuery(limit=20, cursor="c4"))
    assert [one.id for one in rest.contexts] == ["c5", "c6", "c7", "c8", "c9"]


# -- copies that come late ------------------------------------------------------------------------------------


def item(id_: str, version: int, created_at: float = 1_000.0) -> Item:
    return Item(
        id=id_,
        type="note",
        context="c",
        priority=5,
        raw_content=b"%d" % version,
        raw_metadata=b"{}",
        version=version,
        created_at=created_at,
        updated_at=created_at,
        expires_at=9_999_999_999.0,
        ttl_s=900.0,
        more=More(),
    )


@pytest.mark.parametrize(
    ("copies", "left"),
    [
        ([ItemCopy(item("a", 1)), ItemCopy(item("a", 2))], 2),
        ([ItemCopy(item("a", 2)), ItemCopy(item("a", 1))], 2),
        ([ItemCopy(item("a", 2)), ItemEnded("a"), ItemCopy(item("a", 1))], None),
        ([ItemCopy(item("a", 2)), ItemEnded("a"), ItemCopy(item("a", 3))], None),
        ([ItemEnded("a"), ItemCopy(item("a", 3))], None),
        # Another one of the same id.
        ([ItemCopy(item("a", 7)), ItemEnded("a"), ItemCopy(item("a", 1, created_at=2_000.0))], 1),
        ([ItemCopy(item("a", 1, created_at=2_000.0)), ItemCopy(item("a", 7))], 1),
        ([ItemCopy(item("a", 7)), ItemEnded("a"), ItemCopy(item("a", 1), is_new=True)], 1),
        ([ItemCopy(item("a", 2)), ItemCopy(item("a", 1), is_new=True)], 2),
        ([ItemCopy(item("a", 1, created_at=2_000.0)), ItemEnded("a", at_ms=1_500_000)], 1),
        ([ItemCopy(item("a", 1, created_at=2_000.0)), ItemEnded("a", at_ms=2_500_000)], None),
    ],
)
async def test_whatever_comes_late_changes_nothing(m: Memory, copies: list[Any], left: int | None) -> None:
    backup_of(m).thread.copy(*copies)
    (found,) = await backup_of(m).keeper.read(["a"])

    assert (found and found.version) == left


# -- spilled --------------------------------------------------------------------------------------------------


async def test_what_was_spilled_is_kept_until_its_end_and_never_taken_for_there(m: Memory) -> None:
    items = [await m.create("note", number, id=f"n{number}", ttl_s=ttl_s) for number, ttl_s in enumerate((50, 40, 0.2))]
    await backup_of(m).spill(items[:1])
    # Also from the loop of another thread: that is where room is made.
    await asyncio.to_thread(asyncio.run, backup_of(m).spill(items[1:]))
    for one in items:
        await m.delete(one.id)

    async def has_ended() -> bool:
        return len(await backup_of(m).spilled()) == 2

    await eventually(has_ended)
    spilled = await backup_of(m).spilled()
    assert [(one.id, one.content, one.from_backup) for one in spilled] == [("n1", 1, True), ("n0", 0, True)]
    assert await m.get_many(["n0", "n1"]) == [None, None]
    assert await backup_of(m).keeper.read(["n0", "n1"]) == [None, None]
    assert (await backup_of(m).contents()).spilled == 2
