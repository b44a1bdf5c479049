"""Ways in which a memory like this breaks, each as the opposite that must hold here: what is sealed."""

from __future__ import annotations

import base64
import secrets
from typing import Any

import msgspec
import pytest
from tests.memory.promises.beginnings import everything, item_key

from kizuna.app import connect
from kizuna.errors import (
    CannotOpen,
    WrongValue,
)
from kizuna.sections import Secret
from kizuna.settings import MemorySettings, Settings
from kizuna.testing import ServerProcess


def ring(*names: str) -> dict[str, str]:
    return {name: base64.b64encode(secrets.token_bytes(32)).decode() for name in names}


def sealing(settings: Settings, keys: dict[str, str]) -> Settings:
    pytest.importorskip("cryptography")
    text = " ".join(f"{name}:{key}" for name, key in keys.items())
    return msgspec.structs.replace(settings, memory=MemorySettings(seal_keys=Secret(text)))


async def test_a_sealed_content_opens_in_its_own_item_only(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    async with connect(sealing(settings, ring("one"))) as k:
        await k.memory.create("secret", "of alice", id="alice", sealed=True)
        await k.memory.create("secret", "of mallory", id="mallory", sealed=True)
        stolen = server.call("HGET", item_key(root, "alice"), "content")
        assert b"alice" not in stolen
        server.call("HSET", item_key(root, "mallory"), "content", stolen)

        item = await k.memory.get("mallory")
        assert item is not None
        with pytest.raises(CannotOpen):
            _ = item.content
        alice = await k.memory.get("alice")
        assert alice is not None
        assert alice.content == "of alice"


async def test_keys_can_be_changed_and_what_was_sealed_before_opens_still(settings: Settings) -> None:
    keys = ring("old", "new")
    async with connect(sealing(settings, {"old": keys["old"]})) as k:
        await k.memory.create("secret", "text", id="a", sealed=True)
    async with connect(sealing(settings, {"new": keys["new"], "old": keys["old"]})) as k:
        item = await k.memory.get("a")
        assert item is not None
        assert item.content == "text"
        await k.memory.reseal()
    async with connect(sealing(settings, {"new": keys["new"]})) as k:
        item = await k.memory.get("a")
        assert item is not None
        assert item.content == "text"


async def test_nothing_of_a_sealed_content_is_seen_by_the_server(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    async with connect(sealing(settings, ring("one"))) as k:
        await k.memory.create("secret", {"text": "behind the clock"}, id="a", sealed=True)
        await k.memory.update("a", content={"text": "under the clock"}, sealed=True)
        await k.memory.move("a", "chat")
        await k.memory.copy("a", "work", new_id="b")
        copy = await k.memory.get("b")
        assert copy is not None
        assert copy.content == {"text": "under the clock"}
        assert "clock" not in str(everything(server, root))
        assert b"clock" not in b"".join(flat(server.call("XRANGE", f"{root}:memory:feed", "-", "+")))


def flat(reply: Any) -> list[bytes]:
    return [reply] if isinstance(reply, bytes) else [raw for part in reply for raw in flat(part)]


async def test_a_content_that_only_looks_sealed_is_no_lie_that_passes(settings: Settings) -> None:
    """Whether something is sealed is not for the content to say."""
    async with connect(sealing(settings, ring("one"))) as k:
        for content in ({"_encrypted": True}, {"_encrypted": True, "data": {"encrypted": "", "iv": "", "authTag": ""}}):
            try:
                item = await k.memory.create("note", content)
            except WrongValue:
                continue
            read = await k.memory.get(item.id)
            assert read is not None
            assert read.content == content
