"""What ends items before their time: something they depend on, and a generation that is raised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.memory.exactness import assert_indexes_exact

from kizuna.app import connect
from kizuna.memory.memory import Memory
from kizuna.settings import MemorySettings, Settings
from kizuna.testing import ServerProcess, eventually


async def alive(m: Memory) -> list[str]:
    return sorted([item.id async for item in m.all()])


async def ends(m: Memory) -> list[tuple[str, str, str]]:
    events = (await m.events_since("0", limit=1000)).events
    return sorted(
        (event.id, event.kind, event.reason) for event in events if event.kind in ("item:deleted", "item:expired")
    )


# -- by what they depend on -----------------------------------------------------------------------------------------


async def test_what_depends_on_a_name_ends_when_that_changes(m: Memory, server: ServerProcess, root: str) -> None:
    await m.create("sum", 1, id="a", depends_on=["table:users", "rates"])
    await m.create("sum", 2, id="b", depends_on=["rates"])
    await m.create("sum", 3, id="c")

    assert await m.changed("unknown") == 0
    assert await m.changed("table:users") == 1
    assert await alive(m) == ["b", "c"]
    assert await m.changed("table:users") == 0
    assert await m.changed("rates", "table:users") == 1
    assert await alive(m) == ["c"]
    assert await ends(m) == [("a", "item:deleted", "changed"), ("b", "item:deleted", "changed")]
    assert_indexes_exact(server, root)


CHANGES: dict[str, Callable[[Memory], Awaitable[Any]]] = {
    "update": lambda m: m.update("a", content=2),
    "change": lambda m: m.change("a", lambda content: content + 1),
    "put": lambda m: m.put("a", "note", 2),
    "move": lambda m: m.move("a", "chat"),
    "delete": lambda m: m.delete("a"),
    "changed": lambda m: m.changed("a"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_depends_on_an_item_ends_when_that_is_changed_or_ends_and_so_on(
    m: Memory, server: ServerProcess, root: str, change: str
) -> None:
    await m.create("note", 1, id="a")
    await m.create("sum", 1, id="b", depends_on=["a"])
    await m.create("sum", 1, id="c", depends_on=["b", "other"], context="chat")
    await m.create("sum", 1, id="d", depends_on=["c"])
    await m.create("sum", 1, id="e", depends_on=["other"])

    await CHANGES[change](m)

    assert await alive(m) == (["e"] if change == "delete" else ["a", "e"])
    dependents = [(id_, "item:deleted", "changed") for id_ in "bcd"]
    assert [end for end in await ends(m) if end[0] != "a"] == dependents
    assert_indexes_exact(server, root)


async def test_what_depends_on_an_item_ends_when_that_expires(
    brief: Settings, server: ServerProcess, root: str
) -> None:
    async with connect(brief) as k:
        m = k.memory
        await m.create("note", 1, id="a", ttl_s=2)
        await m.create("sum", 1, id="b", depends_on=["a"])
        await m.create("sum", 1, id="c", depends_on=["b"])
        await eventually(lambda: _is_empty(m), within_s=20)
        assert await ends(m) == [
            ("a", "item:expired", "time"),
            ("b", "item:deleted", "changed"),
            ("c", "item:deleted", "changed"),
        ]
        assert_indexes_exact(server, root)


async def _is_empty(m: Memory) -> bool:
    return await alive(m) == []


async def test_what_was_over_before_the_change_is_told_to_have_expired(brief: Settings) -> None:
    idle = msgspec.structs.replace(brief.memory, sweep_every_s=3600)
    async with connect(msgspec.structs.replace(brief, memory=idle)) as k:
        m = k.memory
        await m.create("sum", 1, id="a", depends_on=["x"], ttl_s=0.05)
        await m.create("sum", 1, id="b", depends_on=["a"])
        await eventually(lambda: _is_gone(m, "a"), within_s=20)
        assert await m.changed("x") >= 1
        assert await ends(m) == [("a", "item:expired", "time"), ("b", "item:deleted", "changed")]


async def _is_gone(m: Memory, id_: str) -> bool:
    return await m.get(id_) is None


async def test_touching_and_reading_change_nothing(m: Memory) -> None:
    await m.create("note", 1, id="a")
    await m.create("sum", 1, id="b", depends_on=["a"])
    await m.touch("a", ttl_s=5000)
    await m.get("a")
    await m.copy("a", "chat")
    assert await m.get("b") is not None


async def test_those_that_depend_on_each_other_end_with_each_other(m: Memory, server: ServerProcess, root: str) -> None:
    await m.create("sum", 1, id="a", depends_on=["b", "x"])
    await m.create("sum", 1, id="b", depends_on=["a"])
    assert await m.changed("x") == 2
    assert await alive(m) == []
    assert_indexes_exact(server, root)


async def test_what_no_longer_depends_on_something_survives_its_change(m: Memory) -> None:
    await m.put("a", "sum", 1, depends_on=["x", "y"])
    await m.put("a", "sum", 2, depends_on=["y"])
    assert await m.changed("x") == 0
    assert await m.changed("y") == 1


async def test_very_many_dependents_end_in_steps_and_all_of_them(m: Memory, server: ServerProcess, root: str) -> None:
    number = 3_000
    for first in range(0, number, 500):
        await m.create_many(
            [{"type": "sum", "content": 1, "id": f"i{n}", "depends_on": ["x"]} for n in range(first, first + 500)]
        )
    await m.create("sum", 1, id="last", depends_on=["i2999"])
    await m.changed("x")
    await eventually(lambda: _is_empty(m), within_s=20)
    await eventually(lambda: _exact(server, root), within_s=20)
    told, cursor = [], "0"
    while True:
        page = await m.events_since(cursor, limit=1000)
        if not page.events:
            break
        told += [event.id for event in page.events if event.kind == "item:deleted"]
        cursor = page.cursor
    assert len(told) == len(set(told)) == number + 1


# -- by their generation --------------------------------------------------------------------------------------------


async def test_raising_a_generation_ends_all_older_at_once_for_everybody_who_reads(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    # Nobody sweeps meanwhile: it is the reads that know.
    memory = MemorySettings(sweep_every_s=3600)
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        m = k.memory
        await m.create_many([{"type": "sum", "content": n, "id": f"i{n}", "generation": "model"} for n in range(50)])
        await m.create("sum", 1, id="other", generation="prices")
        await m.create("sum", 1, id="plain")

        assert await m.raise_generation("model") == 1
        assert await alive(m) == ["other", "plain"]
        assert await m.get_many([f"i{n}" for n in range(50)]) == [None] * 50
        for query in ({"type": "sum"}, {"context": "global"}, {"priority": 5}, {"type": "sum", "context": "global"}):
            assert [item.id async for item in m.all(**query)] == ["other", "plain"]

        again = await m.create("sum", 2, id="i7", generation="model")
        assert again.version == 1
        assert await alive(m) == ["i7", "other", "plain"]
        assert await m.raise_generation("model") == 2
        assert await alive(m) == ["other", "plain"]


async def test_what_was_outdated_is_swept_and_told_once(m: Memory, server: ServerProcess, root: str) -> None:
    await m.create_many([{"type": "sum", "content": n, "id": f"i{n}", "generation": "model"} for n in range(300)])
    await m.create("sum", 1, id="dependent", depends_on=["i7"])
    await m.raise_generation("model")
    await m.create("sum", 1, id="new", generation="model")

    await eventually(lambda: _exact_with(server, root, 1), within_s=20)
    expected = [
        ("dependent", "item:deleted", "changed"),
        *((f"i{n}", "item:deleted", "generation") for n in range(300)),
    ]
    assert await ends(m) == sorted(expected)
    assert await alive(m) == ["new"]


async def test_what_was_outdated_cannot_be_changed_touched_or_moved(settings: Settings) -> None:
    memory = MemorySettings(sweep_every_s=3600)
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        m = k.memory
        for number in range(5):
            await m.create("sum", 1, id=f"i{number}", generation="model")
        await m.raise_generation("model")
        for wrong in (m.update("i0", content=2), m.touch("i1"), m.move("i2", "chat"), m.copy("i3", "chat")):
            with pytest.raises(KeyError):
                await wrong
        assert not await m.delete("i4")
        assert await alive(m) == []
        await m.delete_many([f"i{n}" for n in range(5)])


def _exact(server: ServerProcess, root: str) -> bool:
    assert_indexes_exact(server, root)
    return True


def _exact_with(server: ServerProcess, root: str, items: int) -> bool:
    assert_indexes_exact(server, root)
    return bool(server.call("ZCARD", f"{root}:memory:short:idx:expiry") == items)
