"""Contexts: their lives, what being used does to them, and what becomes of their items."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.memory.exactness import assert_indexes_exact
from tests.memory.moving_time import move_time

from kizuna.app import Kizuna, connect
from kizuna.errors import ContextExists, ContextMissing, IllegalName, VersionConflict, WrongValue
from kizuna.memory.context import Context
from kizuna.memory.memory import Memory
from kizuna.settings import Settings
from kizuna.testing import ServerProcess, eventually


async def found(m: Memory, id_: str) -> Context:
    context = await m.contexts.get(id_)
    assert context is not None
    return context


async def ids_in(m: Memory, context: str) -> list[str]:
    return [item.id async for item in m.all(context=context)]


# -- kept -----------------------------------------------------------------------------------------------------------


async def test_what_was_created_is_read_as_it_was(m: Memory) -> None:
    made = await m.contexts.create("Chat with 花", "chat", id="c", ttl_s=1000, metadata={"x": [1]}, at_end="leave")
    context = await found(m, "c")

    assert context.as_dict() == made.as_dict()
    assert (context.id, context.name, context.type, context.metadata) == ("c", "Chat with 花", "chat", {"x": [1]})
    assert (context.version, context.is_active, context.at_end) == (1, True, "leave")
    assert context.expires_at - context.created_at == pytest.approx(1000, abs=0.002)
    assert await m.contexts.get("d") is None


async def test_of_two_that_create_one_id_one_is_refused(m: Memory) -> None:
    outcomes = await asyncio.gather(
        *(m.contexts.create(f"{n}", "chat", id="c") for n in range(5)), return_exceptions=True
    )
    assert sum(isinstance(outcome, ContextExists) for outcome in outcomes) == 4
    assert (await found(m, "c")).version == 1


async def test_an_update_changes_what_it_names(m: Memory, server: ServerProcess, root: str) -> None:
    expected = (await m.contexts.create("Chat", "chat", id="c", metadata={"x": 1})).as_dict()
    steps: list[dict[str, Any]] = [{"name": "Talk"}, {"type": "talk"}, {"metadata": {}}, {"at_end": "leave"}]
    for number, change in enumerate(steps, start=2):
        context = await m.contexts.update("c", **change)
        expected |= change | {"version": number, "updated_at": context.updated_at, "expires_at": context.expires_at}
        assert context.as_dict() == expected
        assert (await found(m, "c")).as_dict() == expected
        assert_indexes_exact(server, root)
    with pytest.raises(VersionConflict) as conflict:
        await m.contexts.update("c", name="x", expected_version=1)
    assert (conflict.value.what, conflict.value.actual) == ("context", 5)
    await m.contexts.update("c", name="x", expected_version=5)


async def test_what_is_not_there_cannot_be_changed(m: Memory, server: ServerProcess, root: str) -> None:
    for wrong in (
        m.contexts.update("c", name="x"),
        m.contexts.activate("c"),
        m.contexts.deactivate("c"),
        m.contexts.touch("c"),
    ):
        with pytest.raises(ContextMissing):
            await wrong
    assert not await m.contexts.delete("c")
    assert server.call("KEYS", f"{root}:memory:*") == []


@pytest.mark.parametrize(
    "wrong", [{"at_end": "burn"}, {"ttl_s": -1}, {"metadata": [1]}, {"name": "half \ud800"}], ids=ascii
)
async def test_what_cannot_be_is_refused(m: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongValue):
        await m.contexts.create(**{"name": "Chat", "type": "chat", **wrong})
    with pytest.raises(IllegalName):
        await m.contexts.create("Chat", "a b")


async def test_contexts_are_listed_by_type_and_by_being_active(m: Memory) -> None:
    for number in range(7):
        await m.contexts.create("n", f"t{number % 2}", id=f"c{number}", active=number < 4)

    async def listed(**query: Any) -> list[str]:
        return [context.id async for context in m.contexts.all(**query)]

    assert await listed() == [f"c{number}" for number in range(7)]
    assert await listed(type="t0") == ["c0", "c2", "c4", "c6"]
    assert await listed(active=True) == ["c0", "c1", "c2", "c3"]
    assert await listed(active=False) == ["c4", "c5", "c6"]
    assert await listed(type="t1", active=True) == ["c1", "c3"]
    assert await listed(type="t7") == []
    pages, cursor = list[list[str]](), ""
    while not pages or cursor:
        page = await m.contexts.list(active=True, limit=3, cursor=cursor)
        pages.append([context.id for context in page.contexts])
        cursor = page.cursor
    assert [len(page) for page in pages[:-1]] == [3] * (len(pages) - 1)
    assert [id_ for page in pages for id_ in page] == ["c0", "c1", "c2", "c3"]


async def test_a_context_is_activated_and_deactivated(m: Memory, server: ServerProcess, root: str) -> None:
    await m.contexts.create("Chat", "chat", id="c")
    assert not (await m.contexts.deactivate("c")).is_active
    assert not (await found(m, "c")).is_active
    assert server.call("SMEMBERS", f"{root}:memory:ctx:idx:active") == []
    assert (await m.contexts.activate("c")).is_active
    assert (await found(m, "c")).is_active
    assert server.call("SMEMBERS", f"{root}:memory:ctx:idx:active") == [b"c"]
    assert_indexes_exact(server, root)


# -- used -----------------------------------------------------------------------------------------------------------


async def test_an_active_context_lives_its_whole_life_again_whenever_it_is_used(
    k: Kizuna, m: Memory, server: ServerProcess, root: str
) -> None:
    await m.contexts.create("Chat", "chat", id="c", ttl_s=1000)
    await m.create("note", 1, id="a", context="c", ttl_s=80_000)
    uses: list[Callable[[], Awaitable[Any]]] = [
        lambda: m.create("note", 1, id="b", context="c", ttl_s=80_000),
        lambda: m.update("a", content=2),
        lambda: m.touch("a"),
        lambda: m.put("a", "note", 3, context="c", ttl_s=80_000),
        lambda: m.change("a", lambda content: content + 1),
        lambda: m.contexts.touch("c"),
    ]
    for use in uses:
        await move_time(k.store, root, 600)
        assert await left_s(k, "c") < 401
        await use()
        assert 998 < await left_s(k, "c") <= 1000
        assert_indexes_exact(server, root)


async def test_what_is_not_active_is_not_lengthened_and_reading_is_no_use(k: Kizuna, m: Memory, root: str) -> None:
    await m.contexts.create("Chat", "chat", id="c", ttl_s=1000, active=False)
    await m.contexts.create("Chat", "chat", id="d", ttl_s=1000)
    await m.create("note", 1, id="b", context="d")
    await move_time(k.store, root, 600)
    await m.create("note", 1, id="a", context="c")
    await m.touch("a")
    await m.get("b")
    await m.list(context="d")
    assert await left_s(k, "c") < 401
    assert await left_s(k, "d") < 401


async def left_s(k: Kizuna, context: str) -> float:
    return (await found(k.memory, context)).expires_at - await k.store.time_s()


# -- ended ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at_end", "told"), [("delete", None), ("leave", "delete")])
async def test_a_context_that_is_deleted_takes_its_items_along(
    m: Memory, server: ServerProcess, root: str, at_end: Any, told: Any
) -> None:
    await m.contexts.create("Chat", "chat", id="c", at_end=at_end)
    await m.create_many([{"type": "note", "content": n, "id": f"i{n}", "context": "c"} for n in range(300)])
    await m.create("note", 1, id="other")

    assert await m.contexts.delete("c", items=told)
    assert await m.contexts.get("c") is None
    assert await ids_in(m, "c") == []
    assert [item.id async for item in m.all()] == ["other"]
    assert not await m.contexts.delete("c")
    await eventually(lambda: exact(server, root), within_s=20)


@pytest.mark.parametrize(("at_end", "told"), [("leave", None), ("delete", "leave")])
async def test_a_context_that_is_deleted_can_leave_its_items_to_the_global_one(
    m: Memory, server: ServerProcess, root: str, at_end: Any, told: Any
) -> None:
    await m.contexts.create("Chat", "chat", id="c", at_end=at_end)
    await m.create_many([{"type": "note", "content": n, "id": f"i{n}", "context": "c"} for n in range(150)])

    assert await m.contexts.delete("c", items=told)
    await eventually(lambda: exact(server, root), within_s=20)
    assert sorted(await ids_in(m, "global")) == sorted(f"i{n}" for n in range(150))
    item = await m.get("i7")
    assert item is not None
    assert (item.context, item.content) == ("global", 7)


@pytest.mark.parametrize("at_end", ["delete", "leave"])
async def test_a_context_that_expires_does_with_its_items_as_it_was_told(
    brief: Settings, server: ServerProcess, root: str, at_end: Any
) -> None:
    async with connect(brief) as k:
        m = k.memory
        await m.contexts.create("Chat", "chat", id="c", at_end=at_end, active=False)
        await m.create_many([{"type": "note", "content": n, "id": f"i{n}", "context": "c"} for n in range(20)])
        await m.contexts.update("c", ttl_s=0.1)

        async def is_settled() -> bool:
            return await m.contexts.get("c") is None and await ids_in(m, "c") == [] and exact(server, root)

        await eventually(is_settled, within_s=20)
        assert len(await ids_in(m, "global")) == (20 if at_end == "leave" else 0)
        feed = (await m.events_since("0", limit=1000)).events
    ends = [(event.kind, event.reason) for event in feed if event.kind in ("item:expired", "item:deleted")]
    assert ends == ([("item:expired", "context")] * 20 if at_end == "delete" else [])
    assert [event.id for event in feed if event.kind == "ctx:expired"] == ["c"]


async def test_a_context_that_expires_takes_along_what_an_outsider_wrote_last(
    k: Kizuna, m: Memory, server: ServerProcess, root: str
) -> None:
    await m.contexts.create("Chat", "chat", id="c", ttl_s=1000, active=False)
    now_ms = round(await k.store.time_s() * 1000)
    ends_ms, below = now_ms + 5_000_000, f"{root}:memory:short"
    fields = ["id", "a", "type", "t", "content", "1", "contextId", "c", "priority", "5", "metadata", "{}"]
    # In one piece, and time goes by in the next: nobody sweeps in between.
    with server.connect() as outsider:
        outsider.call("MULTI")
        outsider.call("HSET", f"{below}:item:a", *fields, "createdAt", now_ms, "expiresAt", ends_ms)
        outsider.call("PEXPIREAT", f"{below}:item:a", ends_ms)
        outsider.call("SADD", f"{below}:idx:type:t", "a")
        outsider.call("SADD", f"{below}:idx:context:c", "a")
        outsider.call("ZADD", f"{below}:idx:priority:5", now_ms, "a")
        outsider.call("ZADD", f"{below}:idx:expiry", ends_ms, "a")
        outsider.call("PEXPIREAT", f"{root}:memory:context:c", now_ms - 1)
        outsider.call("ZADD", f"{root}:memory:ctx:idx:expiry", now_ms - 1, "c")
        outsider.call("EXEC")

    async def is_gone() -> bool:
        return await m.get("a") is None

    await eventually(is_gone, within_s=10)
    assert_indexes_exact(server, root)


async def test_the_global_context_is_always_there_and_can_be_neither_made_nor_ended(m: Memory) -> None:
    await m.create("note", 1, id="a")
    assert await ids_in(m, "global") == ["a"]
    for wrong in (m.contexts.create("x", "t", id="global"), m.contexts.delete("global"), m.contexts.touch("global")):
        with pytest.raises(IllegalName, match="always there"):
            await wrong


def exact(server: ServerProcess, root: str) -> bool:
    assert_indexes_exact(server, root)
    return True


async def test_a_context_can_be_touched_again_and_again(m: Memory) -> None:
    await m.contexts.create("c", "t", id="c", ttl_s=1_000)
    ends = [(await m.contexts.touch("c", ttl_s=ttl_s)).expires_at for ttl_s in (2_000, 3_000, 4_000)]

    assert ends[1] - ends[0] > 900
    assert ends[2] - ends[1] > 900
