"""Ways in which a memory like this breaks, each as the opposite that must hold here: time, events and contexts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from tests.memory.driven import another_process
from tests.memory.finding import ids, what_was_told
from tests.memory.promises.beginnings import item_key, on

from kizuna.app import Kizuna, connect
from kizuna.errors import (
    StoreError,
)
from kizuna.memory.events import Event
from kizuna.memory.memory import Memory
from kizuna.settings import Settings, StoreSettings
from kizuna.testing import ServerProcess, eventually
from kizuna.testing.fixtures import MakeProxy
from kizuna.testing.leaks import scan

HOUR_S = 3_600.0


# -- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
async def test_a_program_with_a_wrong_clock_remembers_like_any_other(
    k: Kizuna, m: Memory, settings: Settings, exact: Callable[[], bool], ahead_s: float
) -> None:
    async with another_process(settings, clock_ahead_s=ahead_s) as wrong:
        before = await k.store.time_s()
        created = await wrong.call("create", "note", "x", id="a", ttl_s=100)
        await wrong.call("contexts.create", "Talk", "chat", id="c", ttl_s=1000)
        after = await k.store.time_s()
        assert before + 99.9 <= created["expires_at"] <= after + 100.1
        assert [item["id"] for item in await wrong.call("list", type="note", ends_after=after + 50)] == ["a"]

        item = await m.get("a")
        assert item is not None
        assert before - 0.1 <= item.created_at <= after + 0.1
        touched = await wrong.call("touch", "a", ttl_s=200)
        assert touched["expires_at"] <= await k.store.time_s() + 200.1
        await m.create("note", "y", id="b", ttl_s=100)
        await wrong.call("update", "b", content="z", ttl_s=300)
        assert await wrong.call("delete", "a") is True

        # Its sweeper ends nothing before its time, and nothing that we wrote is over for it.
        read = await wrong.call("get", "b")
        assert (read["content"], read["version"]) == ("z", 2)
        assert read["expires_at"] <= await k.store.time_s() + 300.1
    context = await m.contexts.get("c")
    assert context is not None
    assert context.expires_at <= after + 1000.1
    assert exact()


async def test_an_end_is_told_once_and_in_time_by_whoever_has_whichever_clock(
    settings: Settings, brief: Settings, server: ServerProcess, root: str, exact: Callable[[], bool]
) -> None:
    async with (
        connect(brief) as k,
        another_process(brief, clock_ahead_s=HOUR_S) as ahead,
        another_process(brief, clock_ahead_s=-HOUR_S) as behind,
    ):
        since = await k.memory.now_cursor()
        lived = [await ahead.call("create", "note", 1, id="a", ttl_s=0.5)]
        lived.append(await behind.call("create", "note", 1, id="b", ttl_s=0.5))
        await eventually(lambda: server.call("ZCARD", f"{root}:memory:short:idx:expiry") == 0)
        await eventually(exact)
        events = (await k.memory.events_since(since)).events

    ended = {event.id: event.at for event in events if event.kind == "item:expired"}
    assert sum(event.kind == "item:expired" for event in events) == 2
    for item in lived:
        assert 0 <= ended[item["id"]] - item["expires_at"] + 0.001 <= 2


async def test_no_item_is_ever_without_an_end(m: Memory, server: ServerProcess, root: str) -> None:
    await m.create("note", 1, id="created")
    await m.put("put", "note", 1)
    await m.put("put", "note", 2)
    await m.update("created", content=2)
    await m.touch("created")
    await m.move("created", "chat")
    await m.copy("created", "work")
    await m.create_many([{"type": "note", "content": 1} for _ in range(3)])
    await m.contexts.create("Talk", "chat")

    with server.connect() as conversation:
        for family in ("memory:short:item", "memory:context"):
            keys = list(scan(conversation, f"{root}:{family}:*"))
            assert keys
            assert all(conversation.call("PTTL", key) > 0 for key in keys)


async def test_a_connection_that_breaks_leaves_items_whole_or_not_there(
    proxy: MakeProxy, settings: Settings, server: ServerProcess, root: str, exact: Callable[[], bool]
) -> None:
    """Every item has an end, all its places, and exactly one event that told of it."""
    through = await proxy()
    cut = msgspec.structs.replace(settings, store=StoreSettings(url=through.url, timeout_s=2.0))
    acknowledged: set[str] = set()

    async def create(k: Kizuna, id_: str) -> None:
        try:
            await k.memory.create("note", "x" * 500, id=id_)
        except StoreError:
            return
        acknowledged.add(id_)

    async with connect(cut) as k:
        for turn in range(10):
            creating = [asyncio.create_task(create(k, f"n{turn}-{number}")) for number in range(10)]
            await asyncio.sleep(0.002 * turn)
            await through.cut()
            await asyncio.gather(*creating)

    async with connect(settings) as k:
        there = set(await ids(k.memory))
        events = await what_was_told(k.memory, "0")
    assert acknowledged <= there
    assert sorted(events) == sorted(("item:created", id_) for id_ in there)
    with server.connect() as conversation:
        assert all(conversation.call("PTTL", item_key(root, id_)) > 0 for id_ in there)
    assert exact()


# -- events ----------------------------------------------------------------------------------------------------------


async def test_no_event_is_lost_for_a_follower_that_was_disconnected(
    proxy: MakeProxy, settings: Settings, m: Memory
) -> None:
    through = await proxy()
    far = msgspec.structs.replace(settings, store=StoreSettings(url=through.url))
    heard: list[tuple[str, str]] = []
    since = await m.now_cursor()

    async def follow(k: Kizuna) -> None:
        async for event in k.memory.follow(since):
            heard.append((event.kind, event.id))  # noqa: PERF401 - it is looked at while it grows

    async with connect(far) as k:
        following = asyncio.create_task(follow(k))
        await m.create("note", 1, id="before")
        await eventually(lambda: heard == [("item:created", "before")])
        through.refuse()
        await through.cut()
        await m.create_many([{"type": "note", "content": number, "id": f"n{number}"} for number in range(8)])
        await m.update("n0", content=1)
        await m.delete("n1")
        await through.accept()
        await m.create("note", 1, id="after")
        await eventually(lambda: ("item:created", "after") in heard, within_s=30)
        following.cancel()
        await asyncio.wait([following])

    assert heard == await what_was_told(m, since)
    assert len(heard) == 12


async def test_whoever_hears_of_a_change_finds_it_made(m: Memory, settings: Settings) -> None:
    async with connect(settings) as other, other.memory.watch() as events:
        changing = asyncio.create_task(change_and_delete(m, 20))
        for _ in range(60):
            event = await events.next(timeout_s=30)
            assert isinstance(event, Event)
            item = await other.memory.get(event.id)
            if event.kind == "item:deleted":
                assert item is None
            elif item is not None:  # not deleted meanwhile
                assert item.version >= (2 if event.kind == "item:updated" else 1)
        await changing


async def change_and_delete(m: Memory, how_many: int) -> None:
    for number in range(how_many):
        await m.create("note", number, id=f"n{number}")
        await m.update(f"n{number}", content=-number)
        await m.delete(f"n{number}")


async def test_an_end_is_told_without_any_notifications_of_the_server(root: str) -> None:
    with ServerProcess() as silent:
        assert silent.call("CONFIG", "GET", "notify-keyspace-events")[1] == b""
        async with connect(on(silent, root, item_least_s=0.05)) as k:
            items = await k.memory.create_many([{"type": "note", "content": n, "ttl_s": 0.3} for n in range(200)])

            async def all_told() -> bool:
                told = [event for event in await what_was_told(k.memory, "0") if event[0] == "item:expired"]
                return sorted(told) == sorted(("item:expired", item.id) for item in items)

            await eventually(all_told)
            ends = {event.id: event.at for event in (await k.memory.events_since("0", limit=1000)).events}
        assert all(ends[item.id] - item.expires_at <= 2 for item in items)
        assert silent.call("CONFIG", "GET", "notify-keyspace-events")[1] == b""


# -- contexts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends_by", ["time", "deletion"])
async def test_a_context_that_ends_takes_its_items_along(
    short: Memory, server: ServerProcess, root: str, exact: Callable[[], bool], ends_by: str
) -> None:
    since = await short.now_cursor()
    ttl_s = 1.0 if ends_by == "time" else 1000.0
    await short.create_many([{"type": "note", "content": n, "context": "c", "id": f"n{n}"} for n in range(30)])
    await short.create("note", "elsewhere", id="elsewhere")
    await short.contexts.create("Talk", "chat", id="c", ttl_s=ttl_s)
    if ends_by == "deletion":
        assert await short.contexts.delete("c") is True

    await eventually(lambda: server.call("EXISTS", f"{root}:memory:context:c") == 0)
    await eventually(exact)
    assert await ids(short) == ["elsewhere"]
    assert await ids(short, context="c") == []
    assert server.call("SISMEMBER", f"{root}:memory:ctx:idx:active", "c") == 0
    ended = "expired" if ends_by == "time" else "deleted"
    told = await what_was_told(short, since)
    assert told.count((f"ctx:{ended}", "c")) == 1
    assert sorted(told[-30:]) == sorted((f"item:{ended}", f"n{number}") for number in range(30))


async def test_a_context_leaves_its_items_to_all_if_it_was_told_so(m: Memory, exact: Callable[[], bool]) -> None:
    await m.contexts.create("Talk", "chat", id="c", at_end="leave")
    await m.create("note", 1, id="a", context="c")
    assert await m.contexts.delete("c") is True

    async def is_everybodys() -> bool:
        return await ids(m, context="global") == ["a"]

    await eventually(is_everybodys)
    assert await ids(m, context="c") == []
    await eventually(exact)
