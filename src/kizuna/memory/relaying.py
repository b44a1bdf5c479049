"""Tells each shard what has changed in the others, for items there may depend on it.

A script sees one shard. So whoever sweeps reads on in the feed of each, from where anybody has come to, and ends in the
other shards what depends on what has changed. Told twice, it does no harm: whoever was created after the change is left
alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kizuna.memory import keys
from kizuna.memory.invalidating import end_dependents_at
from kizuna.memory.raw_names import shown
from kizuna.store.replies import paired

if TYPE_CHECKING:
    from kizuna.memory.server_contexts import ServerContexts
    from kizuna.memory.shard import Shard

_AT_ONCE = 500
# These change nothing that anybody could depend on.
_NO_CHANGE = frozenset({b"touched", b"used", b"shortened", b"resealed"})


async def relay(keeper: ServerContexts) -> None:
    """What has happened in any shard since it was last looked, to all others."""
    if len(keeper.shards) > 1:
        await asyncio.gather(*(_relay_from(keeper, shard) for shard in keeper.shards))


async def _relay_from(keeper: ServerContexts, shard: Shard) -> None:
    relayed = keys.RELAYED.build(shard.root)
    # From the oldest, if nobody has looked yet: what changed before the first sweep has changed as well.
    cursor = await keeper.store.call("GET", relayed) or b"0-0"
    while entries := await keeper.store.call("XRANGE", shard.feed, b"(" + cursor, "+", "COUNT", _AT_ONCE):
        await _tell_others(keeper, shard, _changes(entries))
        cursor = entries[-1][0]
        await keeper.store.call("SET", relayed, cursor)


def _changes(entries: list[Any]) -> dict[str, int]:
    """What has changed, and when it last did, in ms."""
    changes = {}
    for entry, fields in entries:
        told = paired(fields)
        if not told[b"event"].endswith(b":created") and told.get(b"reason") not in _NO_CHANGE:
            changes[shown(told[b"id"])] = int(entry.partition(b"-")[0])
    return changes


async def _tell_others(keeper: ServerContexts, shard: Shard, changes: dict[str, int]) -> None:
    # An id that an outsider chose, and no key of ours can have, is one that nobody can depend on.
    names = [name for name in changes if keys.DEPENDENTS.takes(name=name)]
    others = [other for other in keeper.shards if other is not shard]
    asked = [(other, name) for other in others for name in names]
    found = await asyncio.gather(
        *(keeper.store.call("EXISTS", keys.DEPENDENTS.build(other.root, name=name)) for other, name in asked)
    )
    for (other, name), there in zip(asked, found, strict=True):
        if there:
            await end_dependents_at(keeper, other, name, changed_ms=changes[name])
