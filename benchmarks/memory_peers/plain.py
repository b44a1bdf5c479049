"""The published design of this memory, written with redis-py line for line: a hash for each item and four indexes, in
pipelines without a transaction, the time by the client's clock.

What it leaves out stays left out: nothing is told to anybody, an update touches no index and does not look whether the
item is still there, and index entries of items that have ended stay for ever.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from benchmarks.memory_peers.payload import CONTENT, METADATA, TTL_S, Draft
from benchmarks.peer_roles import URL

ROOT = "harca:memory:short"
BY_EXPIRY = f"{ROOT}:idx:expiry"


class Plain:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def create(self, new: Draft) -> str:
        pipeline = self._client.pipeline(transaction=False)
        item_id = _create(pipeline, new)
        await pipeline.execute()
        return item_id

    async def get(self, id: str) -> Any:  # noqa: A002
        item = await self._read(id)
        return item and item["content"]

    async def update(self, id: str, content: Any) -> None:  # noqa: A002
        await self._client.hset(_item(id), mapping={"content": _written(content), "updatedAt": _now_ms()})

    async def list(self, context: str) -> Sequence[Any]:
        ids = await self._client.smembers(f"{ROOT}:idx:context:{context}")
        return [item["content"] for item in await self._read_many(ids) if item]

    async def delete(self, id: str) -> None:  # noqa: A002
        item = await self._read(id)
        if item:
            pipeline = self._client.pipeline(transaction=False)
            _delete(pipeline, item)
            await pipeline.execute()

    async def create_many(self, new: Sequence[Draft]) -> Sequence[str]:
        pipeline = self._client.pipeline(transaction=False)
        ids = [_create(pipeline, each) for each in new]
        await pipeline.execute()
        return ids

    async def get_many(self, ids: Sequence[str]) -> Sequence[Any]:
        return [item and item["content"] for item in await self._read_many(ids)]

    async def delete_many(self, ids: Sequence[str]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for item in await self._read_many(ids):
            if item:
                _delete(pipeline, item)
        await pipeline.execute()

    async def clear(self) -> None:
        await self._client.execute_command("FLUSHDB", "SYNC")

    async def _read(self, item_id: str) -> dict[str, Any] | None:
        return _read(await self._client.hgetall(_item(item_id)))

    async def _read_many(self, ids: Iterable[str]) -> Sequence[dict[str, Any] | None]:
        pipeline = self._client.pipeline(transaction=False)
        for item_id in ids:
            pipeline.hgetall(_item(item_id))
        return [_read(fields) for fields in await pipeline.execute()]


def _create(pipeline: Pipeline, new: Draft) -> str:
    item_id = str(uuid.uuid4())
    now = _now_ms()
    expiry = now + TTL_S * 1000
    pipeline.hset(
        _item(item_id),
        mapping={
            "id": item_id,
            "type": new.type,
            "content": _written(CONTENT),
            "contextId": new.context,
            "priority": new.priority,
            "createdAt": now,
            "expiresAt": expiry,
            "metadata": _written(METADATA),
        },
    )
    pipeline.pexpireat(_item(item_id), expiry)
    pipeline.sadd(f"{ROOT}:idx:type:{new.type}", item_id)
    pipeline.sadd(f"{ROOT}:idx:context:{new.context}", item_id)
    pipeline.zadd(f"{ROOT}:idx:priority:{new.priority}", {item_id: now})
    pipeline.zadd(BY_EXPIRY, {item_id: expiry})
    return item_id


def _delete(pipeline: Pipeline, item: Mapping[str, Any]) -> None:
    item_id = item["id"]
    pipeline.srem(f"{ROOT}:idx:type:{item['type']}", item_id)
    pipeline.srem(f"{ROOT}:idx:context:{item['contextId']}", item_id)
    pipeline.zrem(f"{ROOT}:idx:priority:{item['priority']}", item_id)
    pipeline.zrem(BY_EXPIRY, item_id)
    pipeline.delete(_item(item_id))


def _read(fields: Mapping[str, str]) -> dict[str, Any] | None:
    if not fields:
        return None
    return {
        **fields,
        "content": json.loads(fields["content"]),
        "metadata": json.loads(fields["metadata"]),
        "createdAt": int(fields["createdAt"]),
        "expiresAt": int(fields["expiresAt"]),
        "priority": int(fields["priority"]),
    }


def _item(item_id: str) -> str:
    return f"{ROOT}:item:{item_id}"


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def remembering() -> AsyncIterator[Plain]:
    # Its pool holds a hundred connections, which is enough for 64 callers.
    client = Redis.from_url(URL, decode_responses=True)
    try:
        yield Plain(client)
    finally:
        await client.aclose()
