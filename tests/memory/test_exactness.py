"""The check of the indexes notices whatever is off, be it one member."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import msgspec
import pytest
from tests.memory.exactness import assert_indexes_exact

from kizuna.testing import ServerProcess
from kizuna.testing.resp import Conversation

BORN_MS = round(time.time() * 1000)
ENDS_MS = BORN_MS + 3_600_000


@pytest.fixture
def root(scratch: str) -> str:
    return f"{scratch}root"


@pytest.fixture
def exact(server: ServerProcess, root: str) -> Iterator[Conversation]:
    """An item with everything, and its context, written by hand."""
    with server.connect() as conversation:
        write_item(conversation, f"{root}:memory:short")
        write_context(conversation, f"{root}:memory")
        yield conversation


def write_item(conversation: Conversation, stem: str) -> None:
    more = {"dependsOn": ["prices"], "generation": "model"}
    fields: dict[str, str | int] = {"id": "a", "type": "note", "content": "1", "contextId": "c", "priority": 7}
    fields |= {
        "createdAt": BORN_MS,
        "expiresAt": ENDS_MS,
        "metadata": "{}",
        "generationNumber": 3,
        "more": json.dumps(more),
    }
    for name, value in fields.items():
        conversation.call("HSET", f"{stem}:item:a", name, value)
    conversation.call("PEXPIREAT", f"{stem}:item:a", ENDS_MS)
    for index in ("idx:type:note", "idx:context:c", "dependents:prices"):
        conversation.call("SADD", f"{stem}:{index}", "a")
    for index in ("idx:priority:7", "order:type:note", "order:context:c"):
        conversation.call("ZADD", f"{stem}:{index}", BORN_MS, "a")
    conversation.call("ZADD", f"{stem}:idx:expiry", ENDS_MS, "a")
    conversation.call("ZADD", f"{stem}:generation:model", 3, "a")
    place = msgspec.msgpack.encode(["note", "c", 7, ["prices"], "model"])
    conversation.call("HSET", f"{stem}:places", "a", place)


def write_context(conversation: Conversation, stem: str) -> None:
    fields: dict[str, str | int] = {"id": "c", "name": "C", "type": "task", "createdAt": BORN_MS, "metadata": "{}"}
    fields["expiresAt"] = ENDS_MS
    for name, value in fields.items():
        conversation.call("HSET", f"{stem}:context:c", name, value)
    conversation.call("PEXPIREAT", f"{stem}:context:c", ENDS_MS)
    conversation.call("SADD", f"{stem}:ctx:idx:type:task", "c")
    conversation.call("SADD", f"{stem}:ctx:idx:active", "c")
    conversation.call("ZADD", f"{stem}:ctx:idx:expiry", ENDS_MS, "c")
    conversation.call("HSET", f"{stem}:ctx:places", "c", msgspec.msgpack.encode(["task", "C", "delete"]))


def test_what_is_exact_passes(exact: Conversation, server: ServerProcess, root: str) -> None:
    assert_indexes_exact(exact, root)
    assert_indexes_exact(server, root)


INDEXES = (
    "short:idx:type:note short:idx:context:c short:idx:priority:7 short:idx:expiry short:order:type:note "
    "short:order:context:c short:dependents:prices short:generation:model short:places "
    "ctx:idx:type:task ctx:idx:expiry ctx:places"
)


@pytest.mark.parametrize("index", INDEXES.split())
def test_a_lost_index_is_noticed(exact: Conversation, root: str, index: str) -> None:
    assert exact.call("DEL", f"{root}:memory:{index}") == 1

    with pytest.raises(AssertionError, match=f"{index} lacks b'.'|has no place"):
        assert_indexes_exact(exact, root)


@pytest.mark.parametrize(
    "command",
    [
        "SADD short:idx:type:note x",
        "SADD short:idx:type:other a",
        "SADD short:idx:context:global a",
        "SADD short:dependents:nothing a",
        "SADD short:changed prices",
        "SADD generations-raised model",
        "SADD ctx:idx:type:other c",
        "SADD ctx:idx:active x",
        "ZADD short:idx:priority:7 1 x",
        "ZADD short:idx:priority:7 1 a",
        "ZADD short:idx:priority:5 1 a",
        "ZADD short:idx:expiry 1 a",
        "ZADD short:order:type:note 1 a",
        "ZADD short:generation:model 2 a",
        "ZADD ctx:idx:expiry 1 c",
        "HSET short:places x \x93\xa1a\xa1b\xa15",
        "HSET ctx:places x \x93\xa1a\xa1b\xa1c",
        "HSET context:c atEnd leave",
        "HSET context:c name other",
        "HSET ctx:ending x y",
        "HSET short:item:a type other",
        "HSET short:item:a priority 8",
        "HSET short:item:a contextId other",
        "HSET short:item:a id b",
        "PERSIST short:item:a",
        "PEXPIRE short:item:a 1000",
        "HSET context:c type other",
        "PERSIST context:c",
        "SADD short:unheard-of x",
    ],
)
def test_whatever_else_is_off_is_noticed(exact: Conversation, root: str, command: str) -> None:
    verb, key, *rest = command.split()
    exact.call(verb, f"{root}:memory:{key}", *(text.encode("latin-1") for text in rest))

    with pytest.raises(AssertionError):
        assert_indexes_exact(exact, root)


def test_a_place_that_is_another_is_noticed(exact: Conversation, root: str) -> None:
    place = msgspec.msgpack.encode(["note", "c", 7, False, "model"])
    exact.call("HSET", f"{root}:memory:short:places", "a", place)

    with pytest.raises(AssertionError, match="place of item"):
        assert_indexes_exact(exact, root)


def test_shards_are_looked_at_as_well(server: ServerProcess, scratch: str) -> None:
    with server.connect() as conversation:
        # The keys of a shard begin with a brace: they are taken away here, not by the fixture.
        stem = f"{{{scratch}root:3}}:memory:short"
        conversation.call("SADD", f"{stem}:idx:type:note", "x")
        try:
            with pytest.raises(AssertionError, match="idx:type:note has b'x'"):
                assert_indexes_exact(conversation, f"{scratch}root")
        finally:
            conversation.call("DEL", f"{stem}:idx:type:note")
