"""What happened: told at once to those who listen, and kept for those who must not miss any of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.errors import EventsGone, ItemExists, ItemMissing, StoreError, VersionConflict, WrongValue
from kizuna.memory.events import Event
from kizuna.memory.memory import Memory
from kizuna.settings import EventsSettings, MemorySettings, RootsSettings, Settings, StoreSettings
from kizuna.store.events import LookAgain
from kizuna.testing import ChaosProxy, ServerProcess, eventually

MakeProxy = Callable[..., Awaitable[ChaosProxy]]


async def everything_since(m: Memory, cursor: str, *, limit: int = 100) -> list[Event]:
    events: list[Event] = []
    while True:
        page = await m.events_since(cursor, limit=limit)
        assert len(page.events) <= limit
        if not page.events:
            return events
        events += page.events
        cursor = page.cursor


def told(events: list[Event]) -> list[tuple[Any, ...]]:
    return [(event.kind, event.id, event.type, event.context, event.version, event.reason) for event in events]


# -- kept -----------------------------------------------------------------------------------------------------------


async def test_each_change_is_one_event_in_the_order_in_which_it_happened(m: Memory) -> None:
    await m.contexts.create("Chat", "chat", id="c")
    await m.create("note", 1, id="a", context="c")
    await m.update("a", type="fact")
    await m.move("a", "work")
    await m.touch("a", ttl_s=5000)
    await m.put("a", "fact", 2, context="work")
    await m.delete("a")
    await m.contexts.update("c", type="talk")
    await m.contexts.delete("c")

    events = (await m.events_since("0")).events
    assert [(event.kind, event.id, event.type, event.context, event.version) for event in events] == [
        ("ctx:created", "c", "chat", "c", 1),
        ("item:created", "a", "note", "c", 1),
        ("item:updated", "a", "fact", "c", 2),
        ("item:updated", "a", "fact", "work", 3),
        ("item:updated", "a", "fact", "work", 3),
        ("item:updated", "a", "fact", "work", 4),
        ("item:deleted", "a", "fact", "work", 4),
        ("ctx:updated", "c", "talk", "c", 2),
        ("ctx:deleted", "c", "talk", "c", 2),
    ]
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert len({event.cursor for event in events}) == len(events)


async def test_what_failed_is_not_told(m: Memory) -> None:
    await m.create("note", 1, id="a")
    cursor = await m.now_cursor()
    for wrong in (m.create("note", 2, id="a"), m.update("a", content=2, expected_version=7), m.update("b", content=1)):
        with pytest.raises((ItemExists, VersionConflict, ItemMissing)):
            await wrong
    assert not await m.delete("b")
    assert (await m.events_since(cursor)).events == []


async def test_a_cursor_goes_on_where_it_was_and_never_shows_one_twice(m: Memory) -> None:
    await m.create("note", 1, id="before")
    cursor = await m.now_cursor()
    assert (await m.events_since("$")).events == []
    first = await m.events_since(cursor)
    assert first.events == []
    await m.create_many([{"type": "note", "content": n, "id": f"i{n:03}"} for n in range(250)])

    events = await everything_since(m, first.cursor, limit=7)
    assert sorted(event.id for event in events) == [f"i{n:03}" for n in range(250)]
    assert [event.id for event in (await m.events_since(events[99].cursor, limit=3)).events] == [
        event.id for event in events[100:103]
    ]


@pytest.mark.parametrize("wrong", ["x", "1-2-3", "-1", "5-x"])
async def test_a_cursor_that_is_none_is_refused(m: Memory, wrong: str) -> None:
    await m.create("note", 1)
    with pytest.raises(WrongValue):
        await m.events_since(wrong)


async def test_who_comes_too_late_is_told_so_and_can_read_on_from_the_oldest(settings: Settings) -> None:
    few = msgspec.structs.replace(settings, memory=MemorySettings(feed_length=10))
    async with connect(few) as k:
        m = k.memory
        before_the_first = await m.now_cursor()
        await m.create("note", 1, id="first")
        cursor = (await m.events_since("0")).cursor
        for _ in range(10):
            await m.create_many([{"type": "note", "content": n} for n in range(100)])
        for too_old in (cursor, before_the_first):
            with pytest.raises(EventsGone):
                await everything_since(m, too_old)
        assert 0 < len(await everything_since(m, "0")) < 1000


async def test_whose_last_event_is_still_there_has_missed_nothing(m: Memory, server: ServerProcess, root: str) -> None:
    await m.create_many([{"type": "note", "content": n} for n in range(10)])
    events = await everything_since(m, "0")
    server.call("XTRIM", f"{root}:memory:feed", "MAXLEN", 4)

    assert told((await m.events_since(events[6].cursor)).events) == told(events[7:])
    assert (await m.events_since(events[9].cursor)).events == []
    with pytest.raises(EventsGone):
        await m.events_since(events[4].cursor)


# -- followed -------------------------------------------------------------------------------------------------------


async def test_following_shows_what_was_and_then_what_comes(m: Memory) -> None:
    await m.create("note", 0, id="i0")
    seen: list[str] = []

    async def follow() -> None:
        nonlocal seen
        async for event in m.follow("0"):
            seen += [event.id]

    following = asyncio.create_task(follow())
    await eventually(lambda: seen == ["i0"], within_s=20)
    for number in range(1, 50):
        await m.create("note", number, id=f"i{number}")
    await eventually(lambda: len(seen) == 50, within_s=20)
    following.cancel()
    assert seen == [f"i{number}" for number in range(50)]


async def test_following_survives_a_restart_of_the_server_without_a_gap(fresh_server: ServerProcess, root: str) -> None:
    settings = Settings(
        store=StoreSettings(url=fresh_server.url, connect_timeout_s=1, reconnect_longest_s=0.2),
        roots=RootsSettings(system=root, coordination=root, memory=root),
    )
    async with connect(settings) as writer, connect(settings) as reader:
        seen: list[str] = []
        following = asyncio.create_task(note_all(reader.memory, seen))
        for number in range(10):
            await writer.memory.create("note", number, id=f"i{number:02}")
        await eventually(lambda: len(seen) == 10, within_s=20)
        await asyncio.to_thread(fresh_server.restart)
        for number in range(10, 20):
            await persistently(writer, number)
        await eventually(lambda: len(seen) == 20 or following.done(), within_s=20)
        assert not following.done()
        following.cancel()
        assert seen == [f"i{number:02}" for number in range(20)]


async def note_all(m: Memory, seen: list[str]) -> None:
    async for event in m.follow("0"):
        seen += [event.id]


async def persistently(k: Kizuna, number: int) -> None:
    async def written() -> bool:
        try:
            await k.memory.put(f"i{number:02}", "note", number)
        except StoreError:
            return False
        return True

    await eventually(written, within_s=20)


async def test_reading_over_connections_that_break_shows_every_event_once(settings: Settings, proxy: MakeProxy) -> None:
    between = await proxy()
    through = msgspec.structs.replace(settings, store=StoreSettings(url=between.url, reconnect_longest_s=0.05))
    async with connect(settings) as writer, connect(through) as reader:
        seen: list[str] = []
        following = asyncio.create_task(note_all(reader.memory, seen))
        for number in range(100):
            await writer.memory.create("note", number, id=f"i{number:03}")
            if number % 20 == 10:
                await eventually(lambda: len(seen) > 0 or following.done(), within_s=20)
                await between.cut()
        await eventually(lambda: len(seen) >= 100 or following.done(), within_s=20)
        assert not following.done()
        following.cancel()
        assert seen == [f"i{number:03}" for number in range(100)]


# -- told at once ---------------------------------------------------------------------------------------------------


async def test_those_who_listen_hear_what_they_asked_for(m: Memory) -> None:
    async with (
        m.watch() as all_of_it,
        m.watch("item:created", context="c") as created,
        m.watch("item:deleted", type="note") as deleted,
        m.watch("ctx:created") as contexts,
    ):
        await m.contexts.create("Chat", "chat", id="c")
        await m.create("note", 1, id="a", context="c")
        await m.create("note", 1, id="b")
        await m.create("fact", 1, id="x")
        await m.delete_many(["a"])
        await m.delete_many(["x"])
        await m.delete_many(["b"])

        assert await heard(all_of_it, 7) == [
            ("ctx:created", "c"),
            ("item:created", "a"),
            ("item:created", "b"),
            ("item:created", "x"),
            ("item:deleted", "a"),
            ("item:deleted", "x"),
            ("item:deleted", "b"),
        ]
        assert await heard(created, 1) == [("item:created", "a")]
        assert await heard(deleted, 2) == [("item:deleted", "a"), ("item:deleted", "b")]
        assert await heard(contexts, 1) == [("ctx:created", "c")]


async def heard(events: Any, number: int) -> list[tuple[str, str]]:
    shown = []
    async with asyncio.timeout(20):
        async for event in events:
            if not isinstance(event, LookAgain):
                shown.append((event.kind, event.id))
            if len(shown) == number:
                break
    return shown


async def test_who_listens_is_told_to_look_again_after_a_cut(settings: Settings, proxy: MakeProxy) -> None:
    between = await proxy()
    through = msgspec.structs.replace(
        settings,
        store=StoreSettings(url=between.url, reconnect_longest_s=0.05),
        events=EventsSettings(canary_every_s=0.2, canary_timeout_s=1),
    )
    async with connect(settings) as writer, connect(through) as reader, reader.memory.watch() as events:
        await writer.memory.create("note", 1, id="a")
        assert await heard(events, 1) == [("item:created", "a")]
        await between.cut()
        async with asyncio.timeout(20):
            async for event in events:
                if isinstance(event, LookAgain):
                    break
        await writer.memory.create("note", 1, id="b")
        assert await heard(events, 1) == [("item:created", "b")]


async def test_the_eight_channels_carry_what_others_expect(k: Kizuna, m: Memory, root: str) -> None:
    redis: Any = await k.redis()
    async with redis.pubsub() as listening:
        await listening.psubscribe(f"{root}:events:memory:*")
        await m.contexts.create("Chat", "chat", id="c")
        await m.create("note", 1, id="a", context="c")
        await m.update("a", content='"quoted" \n 日本')
        await m.create("note", 1, id="日本")
        await m.delete("a")
        await m.contexts.update("c", name="Talk")
        await m.contexts.delete("c")
        messages: list[Any] = []

        async def all_heard() -> bool:
            message = await listening.get_message(ignore_subscribe_messages=True, timeout=0.1)
            if message:
                messages.append(message)
            return len(messages) == 7

        await eventually(all_heard, within_s=20)
    shown = [
        (message["channel"].decode().removeprefix(f"{root}:"), json.loads(message["data"])) for message in messages
    ]
    assert [(channel, event["data"]) for channel, event in shown] == [
        ("events:memory:ctx:created", {"id": "c", "name": "Chat", "type": "chat"}),
        ("events:memory:item:created", {"id": "a", "type": "note", "contextId": "c"}),
        ("events:memory:item:updated", {"id": "a", "type": "note", "contextId": "c"}),
        ("events:memory:item:created", {"id": "日本", "type": "note", "contextId": "global"}),
        ("events:memory:item:deleted", {"id": "a", "type": "note", "contextId": "c"}),
        ("events:memory:ctx:updated", {"id": "c", "name": "Talk", "type": "chat"}),
        ("events:memory:ctx:deleted", {"id": "c", "name": "Talk", "type": "chat"}),
    ]
    assert all(set(event) == {"timestamp", "data"} and isinstance(event["timestamp"], int) for _, event in shown)
