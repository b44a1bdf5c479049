"""redis-om: a HashModel, saved, read, updated and deleted as its documentation says.

Its indexes are those of the Search module, which the server does not have: nothing is indexed here, and it cannot list.
Its way to save many is a pipeline of saves, to which the lives are added; for reading many it has nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aredis_om import Field, HashModel, NotFoundError, get_redis_connection

from benchmarks.memory_peers.payload import CONTENT, METADATA, TTL_S, Draft
from benchmarks.memory_peers.roles import NotOffered
from benchmarks.peer_roles import URL


class Remembered(HashModel, index=True):  # type: ignore[misc, call-arg]
    type: str = Field(index=True)
    context: str = Field(index=True)
    priority: int = Field(index=True)
    content: str
    metadata: str

    class Meta:
        database = get_redis_connection(url=URL, decode_responses=True)


class RedisOm:
    async def create(self, new: Draft) -> str:
        item = _item(new)
        await item.save()
        await item.expire(TTL_S)
        return str(item.pk)

    async def get(self, id: str) -> Any:  # noqa: A002
        try:
            return json.loads((await Remembered.get(id)).content)
        except NotFoundError:
            return None

    async def update(self, id: str, content: Any) -> None:  # noqa: A002
        item = await Remembered.get(id)
        await item.update(content=json.dumps(content))

    async def list(self, context: str) -> Sequence[Any]:
        raise NotOffered

    async def delete(self, id: str) -> None:  # noqa: A002
        await Remembered.delete(id)

    async def create_many(self, new: Sequence[Draft]) -> Sequence[str]:
        items = [_item(each) for each in new]
        pipeline = Remembered.db().pipeline(transaction=False)
        await Remembered.add(items, pipeline=pipeline)
        for item in items:
            await item.expire(TTL_S, pipeline=pipeline)
        await pipeline.execute()
        return [str(item.pk) for item in items]

    async def get_many(self, ids: Sequence[str]) -> Sequence[Any]:
        raise NotOffered

    async def delete_many(self, ids: Sequence[str]) -> None:
        # Of each it wants no more than the key.
        await Remembered.delete_many([Remembered.model_construct(pk=each) for each in ids])

    async def clear(self) -> None:
        await Remembered.db().execute_command("FLUSHDB", "SYNC")


def _item(new: Draft) -> Remembered:
    return Remembered(content=json.dumps(CONTENT), metadata=json.dumps(METADATA), **new._asdict())


@asynccontextmanager
async def remembering() -> AsyncIterator[RedisOm]:
    yield RedisOm()
