"""Programs that know the protocol of units and nothing of kizuna: redis-py, and the four parts of a path.

python outsiders.py answer URL ROOT                    answers whatever is asked, until killed
python outsiders.py ask URL ROOT UNIT ID VALUE         asks, and prints what comes back
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from redis.asyncio import Redis

CHANNEL = "__keyspace@0__:"


async def answer(url: str, root: str) -> None:
    """With the value in upper case; with an error if it begins with `fail`."""
    async with Redis.from_url(url) as redis, redis.pubsub() as pubsub:
        await pubsub.psubscribe(f"{CHANNEL}{root}/*/req/*")
        async for message in pubsub.listen():
            if message["type"] == "psubscribe":
                print("ready", flush=True)  # noqa: T201 - the test waits for it
            elif message["data"] == b"set":
                await answer_one(redis, message["channel"].decode().removeprefix(CHANNEL).lower())


async def answer_one(redis: Redis, path: str) -> None:
    root, unit, _, id_ = path.split("/")
    value = await redis.get(path)
    if not isinstance(value, bytes):
        return
    status, body = ("err", b"no: " + value) if value.startswith(b"fail") else ("res", value.upper())
    await redis.set(f"{root}/{unit}/{status}/{id_}", body, ex=60)


async def ask(url: str, root: str, unit: str, id_: str, value: str) -> None:
    stem = f"{root}/{unit}".lower()
    answers = {f"{stem}/res/{id_}": "reply", f"{stem}/err/{id_}": "error"}
    async with Redis.from_url(url) as redis, redis.pubsub() as pubsub:
        await pubsub.subscribe(*(CHANNEL + path for path in answers))
        subscribed = 0
        async for message in pubsub.listen():
            if message["type"] == "subscribe":
                subscribed += 1
                if subscribed == len(answers):
                    await redis.set(f"{stem}/req/{id_}", value, ex=10)
            elif message["data"] == b"set":
                path = message["channel"].decode().removeprefix(CHANNEL)
                got = await redis.get(path)
                assert isinstance(got, bytes)
                print(answers[path], got.decode(), flush=True)  # noqa: T201 - read by the test
                return


PROGRAMS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"answer": answer, "ask": ask}

if __name__ == "__main__":
    asyncio.run(PROGRAMS[sys.argv[1]](*sys.argv[2:]))
