"""kizuna, as users have it: everything is on that is on by default."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.memory_peers.payload import CONTENT, METADATA, TTL_S, Draft
from benchmarks.peer_roles import URL
from kizuna import connect
from kizuna.app import Kizuna


class Ours:
    def __init__(self, k: Kizuna) -> None:
        self._k = k
        self._memory = k.memory

    async def create(self, new: Draft) -> str:
        item = await self._memory.create(
            new.type, CONTENT, context=new.context, priority=new.priority, metadata=METADATA, ttl_s=TTL_S
        )
        return item.id

    async def get(self, id: str) -> Any:  # noqa: A002
        item = await self._memory.get(id)
        return item and item.content

    async def update(self, id: str, content: Any) -> None:  # noqa: A002
        await self._memory.update(id, content=content)

    async def list(self, context: str) -> Sequence[Any]:
        page = await self._memory.list(context=context, limit=50)
        return [item.content for item in page.items]

    async def delete(self, id: str) -> None:  # noqa: A002
        await self._memory.delete(id)

    async def create_many(self, new: Sequence[Draft]) -> Sequence[str]:
        items = await self._memory.create_many(
            [{"content": CONTENT, "metadata": METADATA, "ttl_s": TTL_S, **each._asdict()} for each in new]
        )
        return [item.id for item in items]

    async def get_many(self, ids: Sequence[str]) -> Sequence[Any]:
        return [item and item.content for item in await self._memory.get_many(ids)]

    async def delete_many(self, ids: Sequence[str]) -> None:
        await self._memory.delete_many(ids)

    async def clear(self) -> None:
        await self._k.store.call("FLUSHDB", "SYNC", timeout_s=60)


@asynccontextmanager
async def remembering() -> AsyncIterator[Ours]:
    async with connect(URL) as k:
        yield Ours(k)
