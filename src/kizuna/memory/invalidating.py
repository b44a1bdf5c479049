"""Ending items before their time, because something else changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kizuna.memory import keys
from kizuna.memory.scripts import script
from kizuna.store.repeating import until_known
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.memory.server_contexts import ServerContexts
    from kizuna.memory.shard import Shard

end_changed = script("end_changed")
raise_generation_of_shard = Script.load(__package__, "raise_generation")

# Ended by one script: some milliseconds, for which others wait.
_AT_ONCE = 500


async def end_dependents_of(keeper: ServerContexts, names: Iterable[str]) -> int:
    """In all shards; each of them until nothing is left that depends on one of these. How many ended."""
    steps = [end_dependents_at(keeper, shard, name) for name in names for shard in keeper.shards]
    return sum(await asyncio.gather(*steps))


async def end_dependents_at(keeper: ServerContexts, shard: Shard, name: str, *, changed_ms: int | None = None) -> int:
    """In one shard. Whoever was created after the change, if that was not now, is left alone."""
    dependents = keys.DEPENDENTS.build(shard.root, name=name)
    ended, more = 0, 1
    while more:
        some, more = await until_known(
            lambda: end_changed(
                keeper.store,
                **shard.told,
                dependents=dependents,
                name=name,
                changed_ms="" if changed_ms is None else changed_ms,
                most=_AT_ONCE,
            )
        )
        ended += some
    return ended


async def raise_generation(keeper: ServerContexts, generation: str, token: str) -> int:
    """In all shards, one after the other; the highest number is returned, should they differ."""
    return max([await _raise_at(keeper, shard, generation, token) for shard in keeper.shards])


async def _raise_at(keeper: ServerContexts, shard: Shard, generation: str, token: str) -> int:
    raised = keys.GENERATIONS_RAISED.build(shard.root)
    number: int = await until_known(
        lambda: raise_generation_of_shard(
            keeper.store, numbers=shard.generations, raised=raised, generation=generation, token=token
        )
    )
    return number
