"""The tool that moves time is right itself: what it leaves is what would be there if we had slept."""

from __future__ import annotations

from typing import Any

from tests.memory.moving_time import move_time

from kizuna.store.client import Store

HOUR_MS = 3_600_000


async def now_ms(store: Store) -> int:
    return round(await store.time_s() * 1000)


async def test_every_time_that_is_kept_is_moved_and_nothing_else(store: Store, root: str) -> None:
    now = await now_ms(store)
    item, context = f"{root}:memory:short:item:a:b", f"{root}:memory:context:c"
    times = {"createdAt": now, "updatedAt": now + 1, "expiresAt": now + HOUR_MS}
    for key in (item, context):
        await store.call("HSET", key, *flat(times), "version", 7, "content", '"createdAt"')
        await store.call("PEXPIREAT", key, now + HOUR_MS)
    scored = [
        "short:idx:expiry",
        "short:idx:priority:5",
        "short:order:type:t",
        "short:order:context:c",
        "ctx:idx:expiry",
    ]
    for name in scored:
        await store.call("ZADD", f"{root}:memory:{name}", now + HOUR_MS, "a:b", now, "x")
    await store.call("ZADD", f"{root}:memory:short:generation:model", 3, "a:b")
    await store.call("SET", f"{root}:memory:relief", "me", "PX", HOUR_MS)

    await move_time(store, root, 60)

    for key in (item, context):
        kept = await store.call("HGETALL", key)
        assert [int(kept[name.encode()]) for name in times] == [time - 60_000 for time in times.values()]
        assert (kept[b"version"], kept[b"content"]) == (b"7", b'"createdAt"')
        assert await store.call("PEXPIRETIME", key) == now + HOUR_MS - 60_000
    for name in scored:
        scores = await store.call("ZRANGE", f"{root}:memory:{name}", 0, -1, "WITHSCORES")
        assert scores == [[b"x", now - 60_000], [b"a:b", now + HOUR_MS - 60_000]]
    assert await store.call("ZSCORE", f"{root}:memory:short:generation:model", "a:b") == 3
    assert 0 < await store.call("PTTL", f"{root}:memory:relief") <= HOUR_MS - 60_000


async def test_what_would_have_ended_is_gone_and_what_stood_in_sets_stays(store: Store, root: str) -> None:
    now = await now_ms(store)
    await store.call("HSET", f"{root}:memory:short:item:a", "expiresAt", now + HOUR_MS)
    await store.call("PEXPIREAT", f"{root}:memory:short:item:a", now + HOUR_MS)
    await store.call("ZADD", f"{root}:memory:short:idx:expiry", now + HOUR_MS, "a")
    await store.call("SADD", f"{root}:memory:short:idx:type:t", "a")

    await move_time(store, root, 3601)

    assert await store.call("EXISTS", f"{root}:memory:short:item:a") == 0
    assert int(await store.call("ZSCORE", f"{root}:memory:short:idx:expiry", "a")) == now - 1000
    assert await store.call("SMEMBERS", f"{root}:memory:short:idx:type:t") == [b"a"]


async def test_other_roots_stay_where_they_are(store: Store, root: str) -> None:
    now, other = await now_ms(store), f"{root}-b:memory:short:idx:expiry"
    await store.call("ZADD", other, now, "a")
    await move_time(store, root, 60)
    assert await store.call("ZSCORE", other, "a") == now
    await store.call("DEL", other)


def flat(fields: dict[str, Any]) -> list[Any]:
    return [part for pair in fields.items() for part in pair]
