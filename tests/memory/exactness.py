"""Are all indexes of memory exact? Worked out from the items and contexts alone, without any code of memory.

One script reads everything below a root at one moment, so that what happens meanwhile cannot be taken for a fault.
What has ended, and was not yet swept, is one: wait for it with `eventually`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import msgspec

from kizuna.testing import ServerProcess
from kizuna.testing.leaks import scan
from kizuna.testing.resp import Conversation

_READ_ALL = """
local read = {}
for i, key in ipairs(KEYS) do
  local kind, value = redis.call("TYPE", key).ok, {}
  if kind == "hash" then value = redis.call("HGETALL", key) end
  if kind == "set" then value = redis.call("SMEMBERS", key) end
  if kind == "zset" then value = redis.call("ZRANGE", key, 0, -1, "WITHSCORES") end
  -- Some servers stop their clock for a script, others do not.
  local before, ttl, after = redis.call("TIME"), redis.call("PTTL", key), redis.call("TIME")
  read[i] = {kind, value, ttl, before, after}
end
return read
"""

# Beside the indexes: what is kept for good, or as long as somebody works with it.
_NO_INDEXES = frozenset(
    {b"memory:feed", b"memory:relayed", b"memory:generations", b"memory:relief", b"memory:short:odd-priorities"}
)
_LOOKED_AT_APART = (
    b"memory:short:item:",
    b"memory:context:",
    b"memory:short:places",
    b"memory:ctx:places",
    b"memory:ctx:idx:active",
)

# By how much the end of a key and what is written of it may differ: PTTL rounds.
_ROUNDED_MS = 2


class Found(NamedTuple):
    kind: bytes
    value: dict[bytes, Any]
    """Of a hash its fields, of a sorted set its members with their scores, of a set its members with None."""
    ends_at_ms: tuple[int, int] | None
    """Not before the first, and not after the second."""


Expected = dict[bytes, dict[bytes, float | None]]
"""The members of each index, with their scores, or with None if it is a set."""


def assert_indexes_exact(server: ServerProcess | Conversation, root: str) -> bool:
    """AssertionError with everything that is off, below this root and its shards; else True, for `eventually`."""
    if isinstance(server, ServerProcess):
        with server.connect() as conversation:
            return assert_indexes_exact(conversation, root)
    wrong = [f"{stem}: {text}" for stem in _stems(server, root) for text in complaints(read_below(server, stem))]
    assert not wrong, "\n".join(wrong)
    return True


def read_below(conversation: Conversation, stem: str) -> dict[bytes, Found]:
    """All keys of memory that begin with this root, by what follows it."""
    keys = sorted(set(scan(conversation, f"{stem}:memory:*")))
    read = conversation.call("EVAL", _READ_ALL, len(keys), *keys)
    found = {key[len(stem) + 1 :]: _found(*facts) for key, facts in zip(keys, read, strict=True)}
    return {name: one for name, one in found.items() if one.kind != b"none"}


def complaints(found: dict[bytes, Found]) -> list[str]:
    """Everything that is off, as sentences."""
    items, contexts = _below(found, b"memory:short:item:"), _below(found, b"memory:context:")
    expected = _expected_of_items(items) | _expected_of_contexts(contexts)
    active = found.get(b"memory:ctx:idx:active")
    return [
        *(text for id_, item in items.items() for text in _own_complaints("item", id_, item)),
        *(text for id_, context in contexts.items() for text in _own_complaints("context", id_, context)),
        *_differences(found, expected),
        *(f"{id_!r} is active, and no context" for id_ in (active.value if active else {}) if id_ not in contexts),
        *_misplaced("item", _item_places(found), {id_: _place(item) for id_, item in items.items()}),
        *_misplaced("context", _context_places(found), {id_: _place_of_context(one) for id_, one in contexts.items()}),
    ]


def _stems(conversation: Conversation, root: str) -> list[str]:
    sharded = {key[: key.index(b"}") + 1].decode() for key in scan(conversation, f"{{{root}:*}}:memory:*")}
    return [root, *sorted(sharded)]


def _found(kind: bytes, value: list[bytes], ttl_ms: int, before: list[bytes], after: list[bytes]) -> Found:
    if kind == b"set":
        read: dict[bytes, Any] = dict.fromkeys(value)
    else:
        read = dict(zip(value[::2], value[1::2], strict=True))
    if kind == b"zset":
        read = {member: float(score) for member, score in read.items()}
    ends = (_milliseconds(before) + ttl_ms, _milliseconds(after) + ttl_ms)
    return Found(kind, read, ends if ttl_ms >= 0 else None)


def _milliseconds(clock: list[bytes]) -> int:
    seconds, micros = map(int, clock)
    return seconds * 1000 + micros // 1000


def _below(found: dict[bytes, Found], start: bytes) -> dict[bytes, Found]:
    return {name.removeprefix(start): one for name, one in found.items() if name.startswith(start)}


def _own_complaints(what: str, id_: bytes, found: Found) -> list[str]:
    if found.kind != b"hash":
        return [f"{what} {id_!r} is a {found.kind.decode()}"]
    wrong = [] if found.value.get(b"id") == id_ else [f"{what} {id_!r} says that it is {found.value.get(b'id')!r}"]
    if found.ends_at_ms is None:
        return [*wrong, f"{what} {id_!r} has no end"]
    earliest, latest = found.ends_at_ms
    if not earliest - _ROUNDED_MS <= _number(found, b"expiresAt") <= latest + _ROUNDED_MS:
        wrong.append(f"{what} {id_!r} ends at {found.ends_at_ms}, and says at {found.value.get(b'expiresAt')!r}")
    return wrong


def _expected_of_items(items: dict[bytes, Found]) -> Expected:
    expected: Expected = defaultdict(dict)
    for id_, item in items.items():
        created, more = _number(item, b"createdAt"), _more(item)
        type_, context, priority = (item.value.get(name, b"") for name in (b"type", b"contextId", b"priority"))
        expected[b"memory:short:idx:type:" + type_][id_] = None
        expected[b"memory:short:idx:context:" + context][id_] = None
        expected[b"memory:short:idx:priority:" + priority][id_] = created
        expected[b"memory:short:idx:expiry"][id_] = _number(item, b"expiresAt")
        expected[b"memory:short:order:type:" + type_][id_] = created
        expected[b"memory:short:order:context:" + context][id_] = created
        for name in more.get("dependsOn", ()):
            expected[b"memory:short:dependents:" + name.encode()][id_] = None
        if generation := more.get("generation"):
            number = float(item.value.get(b"generationNumber", 0))
            expected[b"memory:short:generation:" + generation.encode()][id_] = number
    return expected


def _expected_of_contexts(contexts: dict[bytes, Found]) -> Expected:
    expected: Expected = defaultdict(dict)
    for id_, context in contexts.items():
        expected[b"memory:ctx:idx:type:" + context.value.get(b"type", b"")][id_] = None
        expected[b"memory:ctx:idx:expiry"][id_] = _number(context, b"expiresAt")
    return expected


def _differences(found: dict[bytes, Found], expected: Expected) -> list[str]:
    indexes = {name for name in found if not name.startswith(_LOOKED_AT_APART) and name not in _NO_INDEXES}
    wrong: list[str] = []
    for name in sorted(indexes | expected.keys()):
        is_there, due = found[name].value if name in found else {}, expected.get(name, {})
        shown = name.decode(errors="backslashreplace")
        wrong += [f"{shown} lacks {id_!r}" for id_ in due.keys() - is_there.keys()]
        wrong += [f"{shown} has {id_!r} with {is_there[id_]!r}" for id_ in is_there.keys() - due.keys()]
        wrong += [
            f"{shown} has {id_!r} with {is_there[id_]!r}, not {due[id_]!r}"
            for id_ in due.keys() & is_there.keys()
            if due[id_] != is_there[id_]
        ]
    return wrong


def _places(found: dict[bytes, Found], name: bytes) -> dict[bytes, list[Any]]:
    places = found[name].value if name in found else {}
    return {id_: msgspec.msgpack.decode(packed) for id_, packed in places.items()}


def _item_places(found: dict[bytes, Found]) -> dict[bytes, tuple[str, ...]]:
    def of(type_: str, context: str, priority: object, depends_on: Any = (), generation: Any = "") -> tuple[str, ...]:
        return (type_, context, f"{priority}", *sorted(depends_on or ()), generation or "")

    return {id_: of(*place) for id_, place in _places(found, b"memory:short:places").items()}


def _context_places(found: dict[bytes, Found]) -> dict[bytes, tuple[str, ...]]:
    return {id_: tuple(place) for id_, place in _places(found, b"memory:ctx:places").items()}


def _place(item: Found) -> tuple[str, ...]:
    more = _more(item)
    texts = [item.value.get(name, b"").decode() for name in (b"type", b"contextId", b"priority")]
    return (*texts, *sorted(more.get("dependsOn", ())), more.get("generation") or "")


def _place_of_context(context: Found) -> tuple[str, ...]:
    type_, name = (context.value.get(field, b"").decode() for field in (b"type", b"name"))
    return type_, name, context.value.get(b"atEnd", b"delete").decode()


def _misplaced(what: str, places: dict[bytes, tuple[str, ...]], due: dict[bytes, tuple[str, ...]]) -> list[str]:
    return [
        *_missing(what, places.keys(), due.keys()),
        *(
            f"the place of {what} {id_!r} is {places[id_]}, not {due[id_]}"
            for id_ in places.keys() & due.keys()
            if places[id_] != due[id_]
        ),
    ]


def _missing(what: str, places: Any, due: Any) -> list[str]:
    return [
        *(f"{what} {id_!r} has no place" for id_ in due - places),
        *(f"{what} {id_!r} has a place, and is not there" for id_ in places - due),
    ]


def _more(item: Found) -> dict[str, Any]:
    return msgspec.json.decode(item.value.get(b"more") or b"{}", type=dict[str, Any])


def _number(found: Found, field: bytes) -> float:
    try:
        return float(found.value.get(field, b""))
    except ValueError:
        return -1.0
