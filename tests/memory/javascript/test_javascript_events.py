"""A program in another language, that follows the specification and knows nothing of us, shares a memory with us:
each hears of what the other does; and its contexts are as good as ours."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack

import pytest
from tests.memory.driven import Driven, another_process
from tests.memory.exactness import assert_indexes_exact

from kizuna.app import connect
from kizuna.memory.memory import Memory
from kizuna.settings import Settings
from kizuna.testing import ServerProcess, eventually

EVENTS = tuple(f"{what}:{event}" for what in ("item", "ctx") for event in ("created", "updated", "deleted", "expired"))
HEARD_WITHIN_MS = 2_000


# -- events ----------------------------------------------------------------------------------------------------------


async def test_it_hears_all_eight_events_in_the_form_that_it_knows(js: Driven, brief: Settings, root: str) -> None:
    channels = await js.call("subscribe", *EVENTS)
    assert channels == [f"{root}:events:memory:{event}" for event in EVENTS]
    async with connect(brief) as k:
        earliest_ms = round(await k.store.time_s() * 1000) - 1
        m = k.memory
        await m.create("note", "x", id="a", context="chat")
        await m.update("a", content="y")
        await m.delete("a")
        await m.create("note", "x", id="b", context="chat", ttl_s=0.05)
        await m.contexts.create('The "talk"', "chat", id="c")
        await m.contexts.update("c", name="記憶")
        await m.contexts.delete("c")
        await m.contexts.create("Short", "chat", id="d", ttl_s=0.05, active=False)
        await eventually(lambda: {heard.channel for heard in js.heard} == set(channels), within_s=10)
        latest_ms = round(await k.store.time_s() * 1000)

    told = [(heard.channel.removeprefix(f"{root}:events:memory:"), heard.event["data"]) for heard in js.heard]
    by_the_clock = [told_of for told_of in told if told_of[0] not in ("item:expired", "ctx:expired")]
    assert by_the_clock == [
        ("item:created", {"id": "a", "type": "note", "contextId": "chat"}),
        ("item:updated", {"id": "a", "type": "note", "contextId": "chat"}),
        ("item:deleted", {"id": "a", "type": "note", "contextId": "chat"}),
        ("item:created", {"id": "b", "type": "note", "contextId": "chat"}),
        ("ctx:created", {"id": "c", "name": 'The "talk"', "type": "chat"}),
        ("ctx:updated", {"id": "c", "name": "記憶", "type": "chat"}),
        ("ctx:deleted", {"id": "c", "name": "記憶", "type": "chat"}),
        ("ctx:created", {"id": "d", "name": "Short", "type": "chat"}),
    ]
    assert [data for event, data in told if event == "item:expired"] == [
        {"id": "b", "type": "note", "contextId": "chat"}
    ]
    assert [data for event, data in told if event == "ctx:expired"] == [{"id": "d", "name": "Short", "type": "chat"}]
    for heard in js.heard:
        assert heard.event.keys() == {"timestamp", "data"}
        assert type(heard.event["timestamp"]) is int
        assert earliest_ms <= heard.event["timestamp"] <= latest_ms


async def test_we_hear_what_it_publishes(js: Driven, m: Memory) -> None:
    async with m.watch("item:created") as events:
        new = {"id": "a", "type": "note", "content": 1, "contextId": "chat"}
        await js.call("createWorkingMemoryItem", new)
        await js.call("publishItemCreatedEvent", new)
        async for event in events:
            if getattr(event, "id", None) == "a":
                break

    assert (event.kind, event.type, event.context) == ("item:created", "note", "chat")  # type: ignore[union-attr]


async def test_expired_is_told_once_and_in_time_for_what_it_wrote_whoever_sweeps(
    js: Driven, settings: Settings, server: ServerProcess, root: str
) -> None:
    channel = f"{root}:events:memory:item:expired"
    await js.call("subscribe", "item:expired")
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(another_process(settings)) for _ in range(3)]
        for process in processes:
            await process.call("begin")
        k = await stack.enter_async_context(connect(settings))
        await k.memory.begin()
        since = await k.memory.now_cursor()
        ends_ms: dict[str, int] = {}
        for number in range(12):
            new = {"id": f"n{number}", "type": "note", "content": number, "ttl": 1 + number % 3}
            await js.call("createWorkingMemoryItem", new)
            ends_ms[f"n{number}"] = (await js.call("getWorkingMemoryItem", f"n{number}"))["expiresAt"]

        await eventually(lambda: {heard.event["data"]["id"] for heard in js.heard} == ends_ms.keys(), within_s=20)
        await eventually(lambda: assert_indexes_exact(server, root))
        # Nothing is left of which anybody could tell once more.
        in_the_feed = Counter(event.id for event in (await k.memory.events_since(since)).events)

    assert in_the_feed == dict.fromkeys(ends_ms, 1)
    for id_, due_ms in ends_ms.items():
        [event] = js.events(channel, id_)
        assert event["data"] == {"id": id_, "type": "note", "contextId": "global"}
        assert 0 <= event["timestamp"] - due_ms <= HEARD_WITHIN_MS


# -- contexts that it created ----------------------------------------------------------------------------------------


async def test_its_contexts_are_read_listed_changed_and_deleted_with_their_items(
    js: Driven, m: Memory, server: ServerProcess, root: str
) -> None:
    await js.call("createContext", {"id": "c", "name": "Talk", "type": "chat", "metadata": {"x": []}, "ttl": 1000})
    context = await m.contexts.get("c")
    assert context is not None
    assert (context.name, context.type, context.metadata, context.is_active) == ("Talk", "chat", {"x": []}, True)
    assert [found.id for found in (await m.contexts.list(type="chat")).contexts] == ["c"]
    assert [found.id for found in (await m.contexts.list(active=True)).contexts] == ["c"]

    assert (await m.contexts.deactivate("c")).is_active is False
    assert await js.call("smembers", "memory:ctx:idx:active") == []
    assert (await m.contexts.activate("c")).is_active is True
    assert (await m.contexts.update("c", type="talk")).type == "talk"
    assert await js.call("smembers", "memory:ctx:idx:type:chat") == []
    assert await js.call("smembers", "memory:ctx:idx:type:talk") == ["c"]

    await js.call("createWorkingMemoryItem", {"id": "theirs", "type": "note", "content": 1, "contextId": "c"})
    await m.create("note", 1, id="ours", context="c")
    await m.create("note", 1, id="elsewhere")
    assert await m.contexts.delete("c") is True
    await eventually(lambda: assert_indexes_exact(server, root))
    assert [item and item.id for item in await m.get_many(["theirs", "ours", "elsewhere"])] == [None, None, "elsewhere"]
    assert await js.call("getWorkingMemoryItem", "theirs") is None


async def test_its_context_lives_longer_by_being_used(js: Driven, m: Memory, settings: Settings) -> None:
    for id_ in ("used", "unused"):
        await js.call("createContext", {"id": id_, "name": "Talk", "type": "chat", "ttl": 60})
    await m.create("note", 1, context="used")
    used, unused = await m.contexts.get("used"), await m.contexts.get("unused")

    assert used is not None
    assert unused is not None
    assert unused.expires_at - unused.created_at == pytest.approx(60, abs=1)
    assert used.expires_at - unused.expires_at > settings.memory.context_least_s - 100


async def test_its_context_ends_with_its_items_and_is_told_once(
    js: Driven, m: Memory, server: ServerProcess, root: str
) -> None:
    await js.call("subscribe", "ctx:expired", "item:expired", "item:deleted")
    since = await m.now_cursor()
    await js.call("createContext", {"id": "c", "name": "Talk", "type": "chat", "ttl": 1})
    await js.call("createWorkingMemoryItem", {"id": "theirs", "type": "note", "content": 1, "contextId": "c"})

    await eventually(lambda: js.events(f"{root}:events:memory:ctx:expired", "c"), within_s=10)
    await eventually(lambda: js.events(f"{root}:events:memory:item:expired", "theirs"))
    await eventually(lambda: assert_indexes_exact(server, root))
    assert await m.contexts.get("c") is None
    assert await m.get("theirs") is None
    told = [(event.kind, event.id, event.reason) for event in (await m.events_since(since)).events]
    assert [(kind, id_) for kind, id_, _ in told] == [("ctx:expired", "c"), ("item:expired", "theirs")]
    assert told[1][2] == "context"
