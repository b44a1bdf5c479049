"""After the keys were changed: what is sealed with an older one is sealed again, with the first."""

from __future__ import annotations

import asyncio
from hashlib import sha1
from typing import TYPE_CHECKING

from msgspec import Struct

from kizuna.errors import CannotOpen, CannotSeal
from kizuna.memory.chunks import in_chunks
from kizuna.memory.scripts import script
from kizuna.memory.sealing import KeyRing
from kizuna.store.repeating import until_known

if TYPE_CHECKING:
    from kizuna.memory.item import Item
    from kizuna.memory.memory import Memory
    from kizuna.memory.shard import Shard

reseal_item = script("reseal_item")

_AT_ONCE = 64


class Resealed(Struct):
    looked_at: int = 0
    resealed: int = 0
    failed: list[str] = []
    """Of each item that could not be opened, why. It stays as it is."""


async def reseal(memory: Memory) -> Resealed:
    """Go through all items; those that are sealed with another key than the first, or bound to nothing, are sealed
    anew. Their version goes on; their life stays as it is, and so does whatever depends on them. What others write
    meanwhile stays. Harmless when repeated, or broken off.

    CannotSeal if there are no keys.
    """
    ring = KeyRing.from_settings(memory.store.settings)
    if ring is None:
        raise CannotSeal("there are no keys", "set memory.seal_keys_file")
    done = Resealed()
    async for items in in_chunks(memory.all(), _AT_ONCE):
        done.looked_at += len(items)
        stale = [item for item in items if _is_stale(ring, item)]
        await asyncio.gather(*(_reseal_one(memory, ring, item, done) for item in stale))
    return done


async def _reseal_one(memory: Memory, ring: KeyRing, item: Item, done: Resealed) -> None:
    """Until it is done, or there is nothing to do: somebody else may write it meanwhile."""
    now: Item | None = item
    while now is not None and _is_stale(ring, now):
        try:
            outcome = await _replace(memory, ring, now)
        except CannotOpen as error:
            done.failed.append(str(error))
            return
        if outcome != b"other":
            done.resealed += outcome == b"resealed"
            return
        [now] = await memory.server.read([item.id])


async def _replace(memory: Memory, ring: KeyRing, item: Item) -> bytes:
    root = memory.store.settings.roots.memory
    # The very bytes: a content that is read and written again may come out a little different.
    content = ring.seal(root, item.id, ring.open(root, item.id, item.raw_content))
    was = sha1(item.raw_content, usedforsecurity=False).hexdigest()
    for shard in _likeliest_first(memory, item):
        outcome = await _replace_at(memory, shard, item.id, was, content)
        if outcome != b"missing":
            return outcome
    return b"missing"


def _likeliest_first(memory: Memory, item: Item) -> list[Shard]:
    """Items of the global context may be in any shard, and somebody may have moved any of them meanwhile."""
    likely = memory.server.items_of(item.context, item.id).shard
    return sorted(memory.server.shards, key=lambda shard: shard is not likely)


async def _replace_at(memory: Memory, shard: Shard, id_: str, was: str, content: bytes) -> bytes:
    key = shard.item(id_)
    reply: list[bytes] = await until_known(
        lambda: reseal_item(memory.store, **shard.told, item=key, id=id_, was=was, content=content)
    )
    return reply[0]


def _is_stale(ring: KeyRing, item: Item) -> bool:
    return item.is_sealed and not ring.is_current(item.raw_content)
