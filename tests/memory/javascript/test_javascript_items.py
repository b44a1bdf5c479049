"""A program in another language, that follows the specification and knows nothing of us, shares a memory with us:
each reads, finds and ends what the other wrote."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.memory.driven import CallFailed, Driven
from tests.memory.exactness import assert_indexes_exact

from kizuna.app import Kizuna, connect
from kizuna.errors import ItemExists, ItemMissing, VersionConflict
from kizuna.memory.item import Item
from kizuna.memory.memory import Memory
from kizuna.sections import Secret
from kizuna.settings import MemorySettings, Settings
from kizuna.testing import ServerProcess, eventually

SAFE = 2**53 - 1
CONTENTS: dict[str, Any] = {
    "text": "plain",
    "no text": "",
    "unicode": "記憶 🧠 \u2028\u0000 ü",
    "quotes and blanks": 'a "b" \\ / \n\t',
    "no list": [],
    "no object": {},
    "nothing": None,
    "truth": [True, False],
    "large integers": [SAFE, -SAFE, 1_794_705_715_566_123],
    "fractions": [0.1, -2.5, 1e-7, 1e21, 1.7976931348623157e308],
    "nested": {"a": [{"b": [[], {}, [None, {"c": "日本"}]]}], "": {"": []}},
}


def as_javascript_has_it(item: Item) -> dict[str, Any]:
    return {
        "id": item.id,
        "type": item.type,
        "content": item.content,
        "contextId": item.context,
        "priority": item.priority,
        "createdAt": round(item.created_at * 1000),
        "expiresAt": round(item.expires_at * 1000),
        "metadata": item.metadata,
    }


async def assert_javascript_reads(js: Driven, item: Item) -> None:
    read = await js.call("getWorkingMemoryItem", item.id)
    expected = as_javascript_has_it(item)

    assert {name: read[name] for name in expected} == expected
    assert int(read["version"]) == item.version
    assert item.id in await js.call("smembers", f"memory:short:idx:type:{item.type}")
    assert item.id in await js.call("smembers", f"memory:short:idx:context:{item.context}")
    assert item.id in await js.call("zrange", f"memory:short:idx:priority:{item.priority}")
    assert item.id in await js.call("zrange", "memory:short:idx:expiry")


# -- it reads what we wrote ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
async def test_it_reads_the_contents_that_we_write(js: Driven, m: Memory, content: Any) -> None:
    item = await m.create("note", content, metadata={"same": content})

    await assert_javascript_reads(js, item)
    assert (await js.call("getWorkingMemoryItem", item.id))["content"] == content


async def test_it_reads_what_we_create_replace_update_move_copy_and_touch(js: Driven, m: Memory) -> None:
    await assert_javascript_reads(js, await m.create("note", 1, id="a", context="chat", priority=7, ttl_s=100))
    await assert_javascript_reads(js, await m.put("a", "todo", {"x": 2}, context="work", priority=1))
    await assert_javascript_reads(js, await m.update("a", content=[3], type="note", priority=10, metadata={"by": "us"}))
    await assert_javascript_reads(js, await m.move("a", "home"))
    await assert_javascript_reads(js, await m.touch("a", ttl_s=10_000))
    await assert_javascript_reads(js, await m.copy("a", "work", new_id="b"))

    assert await js.call("smembers", "memory:short:idx:context:chat") == []
    assert await js.call("smembers", "memory:short:idx:context:work") == ["b"]
    assert await js.call("smembers", "memory:short:idx:type:todo") == []
    assert await js.call("zrange", "memory:short:idx:priority:7") == []


async def test_it_reads_what_we_create_many_at_once(js: Driven, m: Memory) -> None:
    items = await m.create_many([{"type": "note", "content": number, "id": f"n{number}"} for number in range(20)])

    for item in items:
        await assert_javascript_reads(js, item)


async def test_what_we_delete_is_gone_for_it(js: Driven, m: Memory) -> None:
    await m.create("note", 1, id="a")
    assert await m.delete("a") is True

    assert await js.call("getWorkingMemoryItem", "a") is None
    assert await js.call("deleteWorkingMemoryItem", "a") is False
    assert await js.call("zrange", "memory:short:idx:expiry") == []


async def test_our_contexts_have_the_fields_and_indexes_that_it_knows(js: Driven, m: Memory, k: Kizuna) -> None:
    context = await m.contexts.create("The talk", "chat", id="c", metadata={"lang": "日本語"})
    root = k.settings.roots.memory
    read = await k.store.call("HGETALL", f"{root}:memory:context:c")

    assert {name: read[name] for name in (b"id", b"name", b"type")} == {
        b"id": b"c",
        b"name": b"The talk",
        b"type": b"chat",
    }
    assert msgspec.json.decode(read[b"metadata"]) == {"lang": "日本語"}
    assert int(read[b"expiresAt"]) == round(context.expires_at * 1000)
    assert int(read[b"createdAt"]) == int(read[b"updatedAt"]) == round(context.created_at * 1000)
    assert await js.call("smembers", "memory:ctx:idx:type:chat") == ["c"]
    assert await js.call("smembers", "memory:ctx:idx:active") == ["c"]
    assert await js.call("zrange", "memory:ctx:idx:expiry") == ["c"]


# -- we read what it wrote -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
async def test_we_read_the_contents_that_it_writes(js: Driven, unswept: Memory, content: Any) -> None:
    id_ = await js.call("createWorkingMemoryItem", {"type": "note", "content": content, "metadata": {"same": content}})
    item = await unswept.get(id_)

    assert item is not None
    assert item.content == content
    assert item.metadata == {"same": content}


async def test_what_it_created_is_read_with_all_it_said_about_it(js: Driven, unswept: Memory) -> None:
    new = {"id": "a", "type": "note", "content": {"x": 1}, "contextId": "chat", "priority": 8, "ttl": 100}
    await js.call("createWorkingMemoryItem", new)
    item = await unswept.get("a")
    said = await js.call("getWorkingMemoryItem", "a")

    assert item is not None
    assert as_javascript_has_it(item) == {name: said[name] for name in as_javascript_has_it(item)}
    assert (item.kind, item.depends_on, item.generation, item.is_sealed) == ("item", (), None, False)
    assert item.version == 1
    assert item.ttl_s == pytest.approx(100, abs=0.01)
    assert await unswept.get("a", context="chat") is not None
    [same, missing] = await unswept.get_many(["a", "b"])
    assert same is not None
    assert missing is None


async def test_what_it_created_is_found_at_once_by_everything_that_can_be_asked_for(
    js: Driven, unswept: Memory
) -> None:
    ours = await unswept.create("note", "ours", context="chat", priority=8, ttl_s=100)
    new = {"id": "theirs", "type": "note", "content": "Theirs: 記憶", "contextId": "chat", "priority": 8, "ttl": 200}
    await js.call("createWorkingMemoryItem", new)
    await js.call("createWorkingMemoryItem", {**new, "id": "other", "type": "todo", "contextId": "work", "priority": 2})

    async def found(**asked: Any) -> list[str]:
        return [item.id for item in (await unswept.list(**asked)).items]

    assert await found(type="note") == [ours.id, "theirs"]
    assert await found(context="chat") == [ours.id, "theirs"]
    assert await found(type="note", context="chat", newest_first=True) == ["theirs", ours.id]
    assert await found(priority=8) == [ours.id, "theirs"]
    assert await found(priority=(1, 3)) == ["other"]
    assert await found(ends_after=ours.expires_at + 50, type="note") == ["theirs"]
    assert sorted(await found(ends_before=ours.expires_at + 1)) == [ours.id]
    assert await found(text="記憶", type="note") == ["theirs"]
    assert sorted(await found()) == sorted([ours.id, "theirs", "other"])
    assert await unswept.count(type="note") == 2
    assert await unswept.count(context="work") == 1


async def test_what_it_created_is_updated_touched_moved_copied_and_deleted(
    js: Driven, unswept: Memory, server: ServerProcess, root: str
) -> None:
    await js.call("createWorkingMemoryItem", {"id": "a", "type": "note", "content": 1, "contextId": "chat", "ttl": 100})
    updated = await unswept.update("a", content=2, priority=9, expected_version=1)
    assert (updated.version, updated.content, updated.priority, updated.context) == (2, 2, 9, "chat")
    assert_indexes_exact(server, root)

    touched = await unswept.touch("a", ttl_s=1_000)
    assert touched.expires_at > updated.expires_at + 800
    moved = await unswept.move("a", "work")
    assert (moved.context, moved.created_at) == ("work", updated.created_at)
    copy = await unswept.copy("a", "home")
    assert (copy.content, copy.context, copy.version) == (2, "home", 1)
    await assert_javascript_reads(js, moved)
    await assert_javascript_reads(js, copy)
    assert_indexes_exact(server, root)

    assert await unswept.delete("a") is True
    assert await unswept.delete(copy.id) is True
    assert await js.call("getWorkingMemoryItem", "a") is None
    assert_indexes_exact(server, root)


async def test_what_it_created_is_deleted_and_replaced_without_having_been_read(
    js: Driven, unswept: Memory, server: ServerProcess, root: str
) -> None:
    for id_ in ("deleted", "replaced", "touched", "refused"):
        await js.call("createWorkingMemoryItem", {"id": id_, "type": "note", "content": 1, "contextId": "chat"})

    assert await unswept.delete("deleted") is True
    replaced = await unswept.put("replaced", "todo", 2, context="work", priority=1)
    assert replaced.version == 2
    assert (await unswept.touch("touched", ttl_s=5_000)).content == 1
    with pytest.raises(ItemExists):
        await unswept.create("todo", 2, id="refused")
    # The one that was only in the way is not ours yet.
    await unswept.get("refused")
    await unswept.touch("refused")
    assert_indexes_exact(server, root)


async def test_what_it_created_is_in_exact_indexes_soon(
    js: Driven, m: Memory, server: ServerProcess, root: str
) -> None:
    for number in range(5):
        await js.call("createWorkingMemoryItem", {"type": "note", "content": number, "contextId": f"c{number}"})

    await eventually(lambda: assert_indexes_exact(server, root))
    assert await m.count(type="note") == 5


async def test_both_change_one_item_and_none_overlooks_the_other(js: Driven, m: Memory) -> None:
    item = await m.create("note", 1, id="a")
    assert await js.call("conditionalUpdate", "a", item.version, {"their": "data"}) is True
    with pytest.raises(VersionConflict):
        await m.update("a", content=2, expected_version=item.version)

    changed = await m.update("a", content=2, expected_version=item.version + 1)
    assert changed.version == item.version + 2
    assert await js.call("conditionalUpdate", "a", item.version + 1, "late") is False
    assert (await js.call("getWorkingMemoryItem", "a"))["content"] == 2


# -- it ends what we wrote, and we hear of it ------------------------------------------------------------------------


async def test_what_it_deletes_of_ours_is_gone_at_once_and_leaves_nothing(
    js: Driven, m: Memory, server: ServerProcess, root: str
) -> None:
    kept = await m.create("note", "kept", context="chat")
    await m.create("note", 1, id="a", context="chat", depends_on=["prices"], generation="model")
    await m.create("note", 2, id="b", context="chat")

    assert await js.call("deleteWorkingMemoryItem", "a") is True
    assert await js.call("deleteWorkingMemoryItem", "b") is True

    assert await m.get("a") is None
    for asked in ({"type": "note"}, {"context": "chat"}, {"priority": 5}, {}):
        assert [item.id for item in (await m.list(**asked)).items] == [kept.id]
    with pytest.raises(ItemMissing):
        await m.update("a", content=3)
    await eventually(lambda: assert_indexes_exact(server, root))
    assert await m.count(type="note") == 1


async def test_an_id_that_it_deleted_can_be_created_again(
    js: Driven, m: Memory, server: ServerProcess, root: str
) -> None:
    await m.create("note", 1, id="a", context="chat", priority=3)
    await js.call("deleteWorkingMemoryItem", "a")

    item = await m.create("todo", 2, id="a", context="work")
    assert item.version == 1
    await assert_javascript_reads(js, item)
    await eventually(lambda: assert_indexes_exact(server, root))


async def test_what_it_shortens_ends_when_it_said_and_is_told_once(
    js: Driven, k: Kizuna, m: Memory, server: ServerProcess, root: str
) -> None:
    await js.call("subscribe", "item:expired")
    since = await m.now_cursor()
    await m.create("note", 1, id="low", priority=1)
    kept = await m.create("note", 1, id="high")
    await js.call("reduceTTLForLowPriorityItems", 0.2)

    await eventually(lambda: js.events(f"{root}:events:memory:item:expired", "low"))
    assert [item.id for item in (await m.list(type="note")).items] == [kept.id]
    await eventually(lambda: assert_indexes_exact(server, root))
    told = [event for event in (await m.events_since(since)).events if event.kind == "item:expired"]
    assert [event.id for event in told] == ["low"]


# -- what is sealed --------------------------------------------------------------------------------------------------


@pytest.fixture
def key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


@pytest.fixture
async def sealing(settings: Settings, key: str) -> AsyncIterator[Memory]:
    pytest.importorskip("cryptography")
    with_keys = MemorySettings(seal_keys=Secret(f"shared:{key}"))
    async with connect(msgspec.structs.replace(settings, memory=with_keys)) as k:
        yield k.memory


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
async def test_we_open_what_it_sealed(js: Driven, sealing: Memory, key: str, content: Any) -> None:
    id_ = await js.call("storeConfidentialItem", {"type": "secret", "content": content}, key)
    item = await sealing.get(id_)

    assert item is not None
    assert item.is_sealed
    assert item.content == content
    assert [found.content for found in (await sealing.list(type="secret")).items] == [content]


async def test_it_reads_that_ours_is_sealed_and_cannot_open_it(js: Driven, sealing: Memory, key: str) -> None:
    item = await sealing.create("secret", {"text": "behind the clock"}, sealed=True)
    read = await js.call("getWorkingMemoryItem", item.id)

    assert read["content"]["_encrypted"] is True
    assert read["content"]["data"].keys() >= {"encrypted", "iv", "authTag"}
    assert "clock" not in str(read)
    with pytest.raises(CallFailed, match="unable to authenticate"):
        await js.call("decryptData", read["content"]["data"], key)


async def test_what_we_update_of_its_sealed_items_stays_sealed_if_told_so(
    js: Driven, sealing: Memory, key: str
) -> None:
    id_ = await js.call("storeConfidentialItem", {"type": "secret", "content": "one"}, key)
    item = await sealing.update(id_, content="behind the clock", sealed=True)

    assert (item.content, item.is_sealed, item.version) == ("behind the clock", True, 2)
    assert "clock" not in str(await js.call("getWorkingMemoryItem", id_))
