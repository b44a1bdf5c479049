"""The members of a set, a sorted set or a hash, in bounded batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kizuna.store.client import Store
    from kizuna.store.keys import KeyType
    from kizuna.store.scanning.pacing import Pace

# So many are looked at in one step: enough to be quick, too few to be felt by others.
_AT_ONCE = 500
_SCANS = {"set": "SSCAN", "zset": "ZSCAN", "hash": "HSCAN"}


async def members(store: Store, key: str) -> AsyncIterator[list[str]]:
    """All members of a set, in batches; what comes or goes meanwhile may be in one of them, or twice."""
    async for batch in raw_members(store, key, "set"):
        yield [member.decode(errors="surrogateescape") for member in batch]


async def raw_members(
    store: Store, key: str | bytes, type_: KeyType, *, pace: Pace | None = None
) -> AsyncIterator[list[bytes]]:
    """The same as they are; also of a sorted set, and the fields of a hash."""
    cursor, width = b"0", 1 if type_ == "set" else 2
    while True:
        asked = store.call(_SCANS[type_], key, cursor, "COUNT", _AT_ONCE)
        cursor, found = await (asked if pace is None else pace.keep(asked))
        if found:
            yield found[::width]
        if cursor == b"0":
            return
