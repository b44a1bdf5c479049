from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Mapping

import msgspec
import pytest
from tests.memory.test_sealing import NEW, OLD, in_base64, sealed_as_others_do

from kizuna.app import Kizuna, connect
from kizuna.errors import CannotOpen, CannotSeal, ContentSealed, WrongValue
from kizuna.memory import resealing
from kizuna.memory.keys import ITEM
from kizuna.memory.resealing import Resealed, reseal
from kizuna.memory.sealing import KeyRing
from kizuna.settings import MemorySettings, Secret, Settings
from kizuna.testing import eventually
from kizuna.testing.servers import ServerProcess

OLD_KEY, NEW_KEY = {"old": OLD}, {"new": NEW}


def with_keys(settings: Settings, keys: Mapping[str, bytes], *, shards: int = 1, sealed: bool = False) -> Settings:
    text = "\n".join(f"{name}:{in_base64(key)}" for name, key in keys.items())
    memory = MemorySettings(seal_keys=Secret(text), shards=shards, sealed=sealed)
    return msgspec.structs.replace(settings, memory=memory)


def stored(server: ServerProcess, root: str, item: str) -> bytes:
    with server.connect() as conversation:
        raw = conversation.call("HGET", ITEM.build(root, item=item), "content")
    assert isinstance(raw, bytes)
    return raw


def put_by_others(server: ServerProcess, root: str, item: str, content: bytes) -> None:
    with server.connect() as conversation:
        conversation.call("HSET", ITEM.build(root, item=item), "content", content)


# what is remembered is sealed


async def test_the_server_never_sees_what_is_sealed(settings: Settings, server: ServerProcess, root: str) -> None:
    async with connect(with_keys(settings, NEW_KEY)) as k:
        item = await k.memory.create("note", {"text": "極秘"}, id="n", sealed=True)
        clear = await k.memory.create("note", {"text": "極秘"}, id="c")

        assert (item.is_sealed, clear.is_sealed) == (True, False)
        assert item.content == {"text": "極秘"}
        found = await k.memory.get("n")
        assert found is not None
        assert (found.content, found.is_sealed) == ({"text": "極秘"}, True)
    assert "極秘".encode() not in stored(server, root, "n")
    assert "極秘".encode() in stored(server, root, "c")


async def test_an_update_seals_again_what_was_sealed(settings: Settings, server: ServerProcess, root: str) -> None:
    async with connect(with_keys(settings, NEW_KEY)) as k:
        await k.memory.create("note", "first", id="n", sealed=True)
        await k.memory.update("n", content="second")
        await k.memory.change("n", lambda content: f"{content} and third")

        item = await k.memory.get("n")
        assert item is not None
        assert (item.content, item.is_sealed) == ("second and third", True)


async def test_what_was_sealed_is_in_no_error_even_if_it_is_no_json(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    async with connect(with_keys(settings, NEW_KEY)) as k:
        await k.memory.create("note", 1, id="n")
        put_by_others(server, root, "n", sealed_as_others_do(b"the code is 7", NEW))
        item = await k.memory.get("n")

        assert item is not None
        with pytest.raises(CannotOpen, match="no JSON") as refused:
            _ = item.content
        assert "code" not in repr(refused.value.__cause__) + "".join(traceback.format_exception(refused.value))


async def test_to_seal_without_a_content_is_refused_instead_of_forgotten(settings: Settings) -> None:
    async with connect(with_keys(settings, NEW_KEY)) as k:
        await k.memory.create("note", "clear", id="n")
        with pytest.raises(WrongValue, match="expected the content as well"):
            await k.memory.update("n", sealed=True)


async def test_everything_can_be_sealed_by_a_setting(settings: Settings, server: ServerProcess, root: str) -> None:
    async with connect(with_keys(settings, NEW_KEY, sealed=True)) as k:
        await k.memory.create("note", 1, id="a")
        await k.memory.create("note", 1, id="b", sealed=False)

    assert stored(server, root, "a").startswith(b'{"_encrypted":true')
    assert stored(server, root, "b") == b"1"


async def test_a_sealed_item_stays_readable_when_it_moves_between_shards(settings: Settings) -> None:
    async with connect(with_keys(settings, NEW_KEY, shards=8)) as k:
        await k.memory.create("note", "極秘", id="n", context="one", sealed=True)
        for number in range(8):
            moved = await k.memory.move("n", f"context-{number}")
            assert moved.content == "極秘"


async def test_ciphertext_copied_to_another_item_does_not_open(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    async with connect(with_keys(settings, NEW_KEY)) as k:
        await k.memory.create("note", "for Alice", id="alice", sealed=True)
        await k.memory.create("note", "for Mallory", id="mallory", sealed=True)
        put_by_others(server, root, "mallory", stored(server, root, "alice"))

        item = await k.memory.get("mallory")
        assert item is not None
        with pytest.raises(CannotOpen, match=r"'mallory' cannot be opened: it was changed, or sealed for another item"):
            _ = item.content


async def test_nobody_can_pass_a_content_of_his_own_for_a_sealed_one(settings: Settings) -> None:
    async with connect(with_keys(settings, NEW_KEY)) as k:
        forged = json.loads(sealed_as_others_do(b'"forged"', NEW))
        with pytest.raises(WrongValue):
            await k.memory.create("note", forged)


async def test_without_keys_nothing_is_sealed_and_nothing_that_was_opens(settings: Settings) -> None:
    async with connect(with_keys(settings, NEW_KEY)) as k:
        await k.memory.create("note", 1, id="n", sealed=True)
    async with connect(settings) as k:
        with pytest.raises(
            CannotSeal, match=r"contents cannot be sealed: there are no keys; set memory.seal_keys_file"
        ):
            await k.memory.create("note", 1, sealed=True)
        with pytest.raises(CannotSeal, match="there are no keys"):
            await reseal(k.memory)
        item = await k.memory.get("n")
        assert item is not None
        assert json.loads(item.raw_content)["_encrypted"] is True
        with pytest.raises(CannotOpen, match=r"there are no keys; set memory.seal_keys_file"):
            _ = item.content


# sealing again


async def test_after_a_change_of_keys_everything_is_sealed_with_the_new_one(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    async with connect(with_keys(settings, OLD_KEY)) as k:
        before = [await k.memory.create("note", number, id=f"n{number}", sealed=True) for number in range(150)]
        await k.memory.create("note", "clear", id="clear")
        await k.memory.create("note", "theirs", id="theirs")
        put_by_others(server, root, "theirs", sealed_as_others_do(b'"theirs"', OLD))

    async with connect(with_keys(settings, {**NEW_KEY, **OLD_KEY})) as k:
        await k.memory.create("note", "current", id="current", sealed=True)
        assert await reseal(k.memory) == Resealed(looked_at=153, resealed=151)
        assert await reseal(k.memory) == Resealed(looked_at=153, resealed=0)
        after = [await k.memory.get(item.id) for item in before]

    assert [(item.expires_at, item.ttl_s, item.created_at) for item in before] == [
        (item.expires_at, item.ttl_s, item.created_at) for item in after if item is not None
    ]
    assert {item.version for item in after if item is not None} == {2}
    # The old key can go.
    async with connect(with_keys(settings, NEW_KEY)) as k:
        contents = {item.id: item.content async for item in k.memory.all()}
    texts = ("clear", "theirs", "current")
    assert contents == {f"n{number}": number for number in range(150)} | dict(zip(texts, texts, strict=True))
    assert stored(server, root, "clear") == b'"clear"'


async def test_what_is_global_is_sealed_again_in_whichever_shard_it_is(settings: Settings) -> None:
    async with connect(with_keys(settings, OLD_KEY, shards=4, sealed=True)) as k:
        await k.memory.contexts.create("Trip", "trip", id="trip", at_end="leave")
        for number in range(16):
            await k.memory.create("note", number, context="global" if number % 2 else "trip")
        await k.memory.contexts.delete("trip")

    async with connect(with_keys(settings, {**NEW_KEY, **OLD_KEY}, shards=4)) as k:
        assert await reseal(k.memory) == Resealed(looked_at=16, resealed=16)
    async with connect(with_keys(settings, NEW_KEY, shards=4)) as k:
        assert sorted([item.content async for item in k.memory.all()]) == list(range(16))


async def test_the_bytes_of_the_content_stay(settings: Settings, server: ServerProcess, root: str) -> None:
    """JSON that another language wrote: read and written again, it would be another text."""
    text = b'{ "a": 1.0, "a": 2, "half": "\\ud800" }'
    async with connect(with_keys(settings, {**NEW_KEY, **OLD_KEY})) as k:
        await k.memory.create("note", 1, id="n")
        put_by_others(server, root, "n", sealed_as_others_do(text, OLD))
        assert (await reseal(k.memory)).resealed == 1

    assert KeyRing(NEW_KEY).open(root, "n", stored(server, root, "n")) == text


async def test_what_depends_on_a_resealed_item_stays_and_its_context_lives_no_longer(settings: Settings) -> None:
    async with connect(with_keys(settings, OLD_KEY)) as k:
        context = await k.memory.contexts.create("trip", "travel", id="trip")
        await k.memory.create("note", 1, id="n", sealed=True, context="trip")
        used = await k.memory.contexts.get("trip")
        await k.memory.create("note", 2, id="dependent", depends_on=["n"])
    async with connect(with_keys(settings, {**NEW_KEY, **OLD_KEY})) as k:
        cursor = await k.memory.now_cursor()
        assert (await reseal(k.memory)).resealed == 1

        assert await k.memory.get("dependent") is not None
        now = await k.memory.contexts.get("trip")
        assert used is not None
        assert now is not None
        assert used.expires_at == now.expires_at >= context.expires_at
        told = (await k.memory.events_since(cursor)).events
        assert [(event.kind, event.id, event.version, event.reason) for event in told] == [
            ("item:updated", "n", 2, "resealed")
        ]


async def test_what_cannot_be_opened_is_named_and_stays(settings: Settings, server: ServerProcess, root: str) -> None:
    async with connect(with_keys(settings, OLD_KEY)) as k:
        await k.memory.create("note", 1, id="lost", sealed=True)
    raw = stored(server, root, "lost")
    async with connect(with_keys(settings, NEW_KEY)) as k:
        done = await reseal(k.memory)

    assert (done.looked_at, done.resealed) == (1, 0)
    assert done.failed == [
        "the sealed content of item 'lost' cannot be opened: it was sealed with the key 'old', which is not among ours"
    ]
    assert stored(server, root, "lost") == raw


async def test_what_is_written_meanwhile_stays(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each item is changed, sealed with the old key or not at all, or deleted, between being read and being written."""
    async with (
        connect(with_keys(settings, OLD_KEY)) as other,
        connect(with_keys(settings, {**NEW_KEY, **OLD_KEY})) as k,
    ):
        for number in range(3):
            await other.memory.create("note", number, id=f"n{number}", sealed=True)
        replace, meanwhile = resealing._replace, {"n0": "sealed", "n1": "clear", "n2": "gone"}

        async def after_somebody_else(memory: object, ring: object, item: object) -> bytes:
            match meanwhile.pop(item.id, None):  # type: ignore[attr-defined]
                case "sealed":
                    await other.memory.update("n0", content="by somebody else")
                case "clear":
                    await other.memory.update("n1", content="in the clear", sealed=False)
                case "gone":
                    await other.memory.delete("n2")
            return await replace(memory, ring, item)  # type: ignore[arg-type]

        monkeypatch.setattr(resealing, "_replace", after_somebody_else)
        assert await reseal(k.memory) == Resealed(looked_at=3, resealed=1)
        assert [(item.id, item.content, item.is_sealed) async for item in k.memory.all()] == [
            ("n0", "by somebody else", True),
            ("n1", "in the clear", False),
        ]


async def test_a_resealing_beside_writers_loses_nothing(settings: Settings) -> None:
    async with (
        connect(with_keys(settings, OLD_KEY)) as old,
        connect(with_keys(settings, {**NEW_KEY, **OLD_KEY})) as new,
    ):
        for number in range(8):
            await old.memory.create("counter", 0, id=f"c{number}", sealed=True)
        ends = asyncio.Event()
        written = [0] * 8

        async def write(k: Kizuna, number: int) -> None:
            while not ends.is_set():
                await k.memory.change(f"c{number}", lambda content: content + 1)
                written[number] += 1

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(write(new, number))
            await eventually(lambda: min(written) > 2)
            done = await reseal(new.memory)
            ends.set()

        assert done.failed == []
        assert [item.content async for item in new.memory.all()] == written


async def test_what_is_sealed_is_replaced_by_what_is_sealed_unless_that_is_said(settings: Settings) -> None:
    async with connect(with_keys(settings, NEW_KEY)) as k:
        await k.memory.create("note", "secret", id="n", sealed=True)

        again = await k.memory.update("n", content="still secret")
        assert (again.is_sealed, again.content, again.version) == (True, "still secret", 2)

        async with connect(settings) as without_keys:
            with pytest.raises(ContentSealed, match=r"item 'n' is sealed, and there are no keys .* say sealed=False"):
                await without_keys.memory.update("n", content="for all to see")
            assert (await without_keys.memory.update("n", priority=7)).version == 3

        open_now = await k.memory.update("n", content="for all to see", sealed=False)
        assert (open_now.is_sealed, open_now.content) == (False, "for all to see")
