"""The members of a set, in bounded batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kizuna.store.client import Store

# So many are looked at in one step: enough to be quick, too few to be felt by others.
_AT_ONCE = 500


async def members(store: Store, key: str) -> AsyncIterator[list[str]]:
    """All members of a set, in batches; what comes or goes meanwhile may be in one of them, or twice."""
    cursor = b"0"
    while True:
        cursor, raw = await store.call("SSCAN", key, cursor, "COUNT", _AT_ONCE)
        if raw:
            yield [member.decode(errors="surrogateescape") for member in raw]
        if cursor == b"0":
            return
