"""After a test: is every key that it left declared, of the declared type, and will it end as declared?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kizuna.catalogue import Family, family_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kizuna.testing.resp import Conversation
    from kizuna.testing.servers import ServerProcess

BEHIND_MATCH = "."
"""What stands behind a test's root in the keys of matchmaking, which puts nothing there by itself."""

# Of a shard, {root:3}:…, the root as well: the check looks below both. Matchmaking's has something behind it, and its
# lock something before it.
_ROOT = re.compile(rb"(?:rueidislock:\d:)?\{?(t-[0-9a-f]{8}(?=\.)|[^:/]*)")
_NO_TTL = -1
_GONE = -2


def assert_keys_end_as_declared(server: ServerProcess, root: str) -> None:
    """Look at every key below `root`, remove it, and fail if one of them was not as the catalogue says."""
    with server.connect() as conversation:
        keys = [key for glob in globs_below(root) for key in scan(conversation, glob)]
        # In three calls and not in three for each key: some tests leave thousands.
        kinds = conversation.call_all([("TYPE", key) for key in keys])
        lives_ms = conversation.call_all([("PTTL", key) for key in keys])
        conversation.call_all([("DEL", key) for key in keys])
    left = zip(keys, kinds, lives_ms, strict=True)
    wrong = [complaint for key, kind, ttl_ms in left if (complaint := _complaint(key, kind.decode(), ttl_ms, root))]
    assert not wrong, "; ".join(wrong)


def root_of(key: bytes) -> str:
    """The root of a test that has left this key."""
    found = _ROOT.match(key)
    return found[1].decode() if found else ""


def globs_below(root: str) -> tuple[str, ...]:
    """Where the keys of a root are, and of its shards, which are hash tags; and the locks of matchmaking."""
    return f"{root}*", f"{{{root}*", f"rueidislock:?:{root}*", f"rueidislock:?:{{{root}*"


def scan(conversation: Conversation, glob: str) -> Iterator[bytes]:
    cursor = b"0"
    while True:
        cursor, keys = conversation.call("SCAN", cursor, "MATCH", glob, "COUNT", 1000)
        yield from keys
        if cursor == b"0":
            return


def _complaint(key: bytes, kind: str, ttl_ms: int, root: str) -> str:
    if ttl_ms == _GONE or kind == "none":  # expired since SCAN saw it
        return ""
    family = family_of(key, roots=[root, root + BEHIND_MATCH, *_shard_of(key)])
    name = key.decode(errors="backslashreplace")
    return f"{name} is in no keys.py" if family is None else _difference(name, family, kind, ttl_ms)


def _shard_of(key: bytes) -> list[str]:
    """The root of a key in a shard: {root:3} of {root:3}:queue:high."""
    before, opened, rest = key.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    is_first = not before or before.startswith(b"rueidislock:")
    return [f"{{{tag.decode(errors='backslashreplace')}}}"] if opened and closed and is_first else []


def _difference(name: str, family: Family, kind: str, ttl_ms: int) -> str:
    if family.key.type not in (kind, "any"):
        return f"{name} is a {kind}, and {family.name} is declared as {family.key.type}"
    if family.key.ends == "expires" and ttl_ms == _NO_TTL:
        return f"{name} would stay for ever, and {family.name} is declared to expire"
    if family.key.ends == "never" and ttl_ms != _NO_TTL:
        return f"{name} ends in {ttl_ms}ms, and {family.name} is declared to stay"
    return ""
