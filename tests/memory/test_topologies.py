"""The same memory on a single server, behind Sentinel, on a cluster with shards, and on Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from tests.memory.exactness import assert_indexes_exact
from tests.memory.finding import ids, rest_of_list

from kizuna.app import Kizuna, connect
from kizuna.errors import ItemExists, SettingsError, StoreError, VersionConflict
from kizuna.memory.memory import Memory
from kizuna.settings import MemorySettings, RootsSettings, Settings, StoreSettings
from kizuna.store.events import LookAgain
from kizuna.testing import ClusterSetup, SentinelSetup, ServerProcess, eventually

SHARDS = 6
CONTEXTS = [f"c{number}" for number in range(8)]


def on(url: str, root: str, shards: int = 1) -> Settings:
    return Settings(
        store=StoreSettings(url=url, connect_timeout_s=1, reconnect_longest_s=0.2),
        roots=RootsSettings(system=root, coordination=root, memory=root),
        memory=MemorySettings(shards=shards, item_least_s=0.05, context_least_s=0.05),
    )


@pytest.fixture(params=["single", "sentinel", "cluster", "redis"])
def servers(request: pytest.FixtureRequest) -> Any:
    """Where it runs, and the servers that hold the data."""
    with ExitStack() as stack:
        if request.param == "redis":
            redis = stack.enter_context(ServerProcess(binary=request.getfixturevalue("redis_binary")))
            yield redis.url, [redis]
        elif request.param == "single":
            server = request.getfixturevalue("server")
            yield server.url, [server]
        elif request.param == "sentinel":
            sentinel = request.getfixturevalue("sentinel")
            yield sentinel.url, [sentinel.primary]
        else:
            cluster = request.getfixturevalue("cluster")
            yield cluster.url, cluster.servers


@pytest.fixture
async def k(servers: Any, root: str) -> AsyncIterator[Kizuna]:
    url, _ = servers
    async with connect(on(url, root, SHARDS if url.startswith("redis+cluster") else 1)) as k:
        yield k
    async with connect(on(url, root)) as k:
        found = await k.store.call_each_primary("KEYS", f"*{root}*")
        for key in [key for keys in found.values() for key in keys]:
            await k.store.call("DEL", key)


@pytest.fixture
def m(k: Kizuna) -> Memory:
    return k.memory


def exact(servers: Any, root: str) -> bool:
    for server in servers[1]:
        assert_indexes_exact(server, root)
    return True


async def fill(m: Memory, number: int = 80) -> list[str]:
    """Their ids, in the order in which they came to be: each shard has its own clock."""
    news = [
        {"id": f"i{n:03}", "type": f"t{n % 3}", "content": n, "context": CONTEXTS[n % 8], "priority": n % 10 + 1}
        for n in range(number)
    ]
    items = await m.create_many(news)
    return [item.id for item in sorted(items, key=lambda item: (item.created_at, item.id))]


def names(numbers: Any) -> list[str]:
    return [f"i{n:03}" for n in numbers]


async def test_items_are_found_with_and_without_their_context(m: Memory, servers: Any, root: str) -> None:
    await fill(m)
    for context in (None, CONTEXTS[3]):
        item = await m.get("i003", context=context)
        assert item is not None
        assert (item.content, item.context) == (3, CONTEXTS[3])
    assert await m.get("none") is None
    many = await m.get_many([*names(range(80)), "none"])
    assert [item and item.content for item in many] == [*range(80), None]
    assert (await m.update("i003", content="x")).version == 2
    assert (await m.update("i004", content="x", context=CONTEXTS[4])).version == 2
    assert (await m.touch("i005")).version == 1
    assert (await m.change("i006", lambda content: content + 1)).content == 7
    with pytest.raises(VersionConflict):
        await m.update("i003", content="y", expected_version=1)
    assert await m.delete("i007")
    assert not await m.delete("i007")
    assert await m.delete_many(names(range(10))) == 9
    await m.touch_many(names(range(10, 20)))
    assert await m.count(type="t1") == len([n for n in range(10, 80) if n % 3 == 1])
    found = [item async for item in m.all(type="t1")]
    for context in {item.context for item in found}:
        assert await m.count(type="t1", context=context) == len([item for item in found if item.context == context])
    exact(servers, root)


async def test_an_id_is_taken_once_wherever_its_context_lies(m: Memory) -> None:
    """Two of one id in two contexts would be two items on two shards."""
    await m.create("note", 1, id="a", context="c0")
    for context in CONTEXTS:
        with pytest.raises(ItemExists):
            await m.create("note", 2, id="a", context=context)
    replaced = await m.put("a", "note", 3, context="c5")
    assert (replaced.version, replaced.context) == (2, "c5")
    assert await ids(m) == ["a"]


async def test_lists_go_over_all_shards_in_one_order_page_by_page(m: Memory) -> None:
    first = await fill(m, 60)
    await m.create("t1", 1, id="late", context="c0")
    order = [*first, "late"]
    for limit in (7, 50, 1000):
        assert await ids(m, limit=limit) == order
        assert await ids(m, limit=limit, newest_first=True) == order[::-1]
        assert [item.id for item in (await m.list(limit=limit)).items] == order[:limit]
    number = {id_: int(id_[1:]) for id_ in first}
    assert await ids(m, type="t1", limit=4) == [*(id_ for id_ in first if number[id_] % 3 == 1), "late"]
    assert await ids(m, context="c2", limit=4) == [id_ for id_ in first if number[id_] % 8 == 2]
    assert await ids(m, priority=(2, 4), limit=4) == [id_ for id_ in first if 2 <= number[id_] % 10 + 1 <= 4]
    # Something goes, also what the cursor stands on, and something comes.
    page = await m.list(limit=10)
    gone = [order[3], order[9], order[10], order[20]]
    await m.delete_many(gone)
    await m.create("t1", 1, id="later", context="c1")
    rest = await rest_of_list(m, page.cursor, limit=10)
    assert rest == [*(id_ for id_ in order[10:] if id_ not in gone), "later"]


async def test_contexts_take_their_items_along_or_leave_them(m: Memory, servers: Any, root: str) -> None:
    for number, context in enumerate(CONTEXTS):
        await m.contexts.create(context, f"t{number % 2}", id=context, at_end="leave" if number == 1 else "delete")
    await fill(m)
    assert [context.id async for context in m.contexts.all()] == CONTEXTS
    assert [context.id async for context in m.contexts.all(type="t1")] == CONTEXTS[1::2]
    await m.contexts.deactivate("c4")
    assert [context.id async for context in m.contexts.all(active=False)] == ["c4"]
    assert (await m.contexts.update("c4", name="x")).version == 3

    assert await m.contexts.delete("c0")
    assert await m.contexts.delete("c1")
    await eventually(lambda: exact(servers, root), within_s=20)
    assert await ids(m, context="c0") == await ids(m, context="c1") == []
    assert sorted(await ids(m, context="global")) == names(range(1, 80, 8))
    left = await m.get("i009")
    assert left is not None
    assert (left.context, left.content) == ("global", 9)
    assert len(await ids(m)) == 70


async def test_a_context_that_expires_leaves_or_ends_its_items(m: Memory, servers: Any, root: str) -> None:
    await m.contexts.create("a", "t", id="c2", active=False)
    await m.contexts.create("b", "t", id="c3", active=False, at_end="leave")
    await m.create_many([{"type": "t", "content": n, "id": f"i{n}", "context": f"c{n % 2 + 2}"} for n in range(20)])
    for context in ("c2", "c3"):
        await m.contexts.update(context, ttl_s=0.1)

    async def settled() -> bool:
        return len(await ids(m)) == 10 and await ids(m, context="c3") == [] and exact(servers, root)

    await eventually(settled, within_s=20)
    assert sorted(await ids(m, context="global")) == sorted(f"i{n}" for n in range(1, 20, 2))


async def test_items_are_moved_and_copied_over_shards(m: Memory, servers: Any, root: str) -> None:
    before = await m.create("note", [1], id="a", context="c0", priority=3, metadata={"x": 1}, depends_on=["d"])
    for number, context in enumerate(CONTEXTS[1:], start=2):
        moved = await m.move("a", context)
        assert (moved.context, moved.version) == (context, number)
    read = await m.get("a")
    assert read is not None
    unchanged = before.as_dict() | {"context": "c7", "version": 8, "updated_at": read.updated_at}
    assert read.as_dict() == unchanged
    copies = [await m.copy("a", context) for context in CONTEXTS]
    assert len(await ids(m)) == 9
    assert sorted(await ids(m, context="c7")) == sorted(["a", copies[7].id])
    exact(servers, root)
    assert await m.changed("d") == 9
    assert await ids(m) == []
    exact(servers, root)


async def test_changes_count_once_while_the_item_goes_from_shard_to_shard(m: Memory, servers: Any, root: str) -> None:
    await m.create("count", 0, id="a", context="c0")
    done = asyncio.Event()

    async def add() -> None:
        for _ in range(40):
            await m.change("a", lambda content: content + 1, within_s=60)

    async def move() -> int:
        moved = 0
        while not done.is_set():
            for context in CONTEXTS:
                # Each of its moves is a conflict to those who change it: they need a moment for themselves.
                await asyncio.sleep(0.005)
                with suppress(VersionConflict):
                    moved += (await m.move("a", context)).context == context
        return moved

    moving = asyncio.create_task(move())
    await asyncio.gather(add(), add(), add())
    done.set()
    moved = await moving
    item = await m.get("a")
    assert item is not None
    assert item.content == 120
    assert item.version == 1 + 120 + moved
    assert await ids(m) == ["a"]
    await eventually(lambda: exact(servers, root), within_s=20)


async def test_dependents_end_wherever_they_lie(m: Memory, servers: Any, root: str) -> None:
    await m.create("note", 0, id="d0", context=CONTEXTS[0])
    for number in range(1, 8):
        await m.create("sum", number, id=f"d{number}", context=CONTEXTS[number], depends_on=[f"d{number - 1}"])
    await m.update("d0", content=1)

    async def all_ended() -> bool:
        return await ids(m) == ["d0"] and exact(servers, root)

    await eventually(all_ended, within_s=20)
    await m.create_many([{"type": "t", "content": 1, "context": context, "depends_on": ["x"]} for context in CONTEXTS])
    await m.changed("x")
    await eventually(all_ended, within_s=20)


async def test_a_generation_ends_everywhere(m: Memory, servers: Any, root: str) -> None:
    await m.create_many([{"type": "t", "content": 1, "context": context, "generation": "g"} for context in CONTEXTS])
    assert await m.raise_generation("g") == 1
    assert await ids(m) == []
    await m.create_many(
        [{"type": "t", "content": 1, "id": context, "context": context, "generation": "g"} for context in CONTEXTS]
    )
    assert sorted(await ids(m)) == CONTEXTS
    await eventually(lambda: exact(servers, root), within_s=20)
    assert sorted(await ids(m)) == CONTEXTS
    assert await m.raise_generation("g") == 2
    assert await ids(m) == []


async def test_the_feed_holds_what_happened_on_all_shards_once(m: Memory) -> None:
    start = await m.now_cursor()
    await fill(m, 80)
    await m.delete_many(names(range(0, 80, 2)))
    seen: list[tuple[str, str]] = []
    cursor = start
    while True:
        page = await m.events_since(cursor, limit=9)
        assert len(page.events) <= 9
        seen += [(event.kind, event.id) for event in page.events]
        if not page.events:
            break
        cursor = page.cursor
    assert sorted(seen) == sorted(
        [
            *(("item:created", id_) for id_ in names(range(80))),
            *(("item:deleted", id_) for id_ in names(range(0, 80, 2))),
        ]
    )
    assert all(seen.index(("item:created", id_)) < seen.index(("item:deleted", id_)) for id_ in names(range(0, 80, 2)))
    # The cursor of any event goes on after it, on its own shard and on all others.
    events = (await m.events_since("0", limit=1000)).events
    rest = (await m.events_since(events[30].cursor, limit=1000)).events
    assert [event.id for event in rest] == [event.id for event in events[31:]]


async def test_following_and_watching_hear_all_shards(m: Memory) -> None:
    followed: list[str] = []

    async def follow(cursor: str) -> None:
        nonlocal followed
        async for event in m.follow(cursor):
            followed += [event.id]

    following = asyncio.create_task(follow(await m.now_cursor()))
    async with m.watch("item:created") as events:
        await fill(m, 40)
        heard: set[str] = set()
        async with asyncio.timeout(20):
            async for event in events:
                if not isinstance(event, LookAgain):
                    heard.add(event.id)
                if len(heard) == 40:
                    break
        await eventually(lambda: len(followed) == 40 or following.done(), within_s=20)
    following.cancel()
    assert sorted(followed) == sorted(heard) == names(range(40))


async def test_items_expire_everywhere_and_are_told_once(m: Memory, servers: Any, root: str) -> None:
    await m.create_many(
        [{"id": f"i{n:03}", "type": "t", "content": n, "context": CONTEXTS[n % 8], "ttl_s": 0.1} for n in range(40)]
    )

    async def expired() -> list[str]:
        events = (await m.events_since("0", limit=1000)).events
        return sorted(event.id for event in events if event.kind == "item:expired")

    await eventually(lambda: _all_of(expired, 40), within_s=20)
    assert await expired() == names(range(40))
    exact(servers, root)


async def _all_of(found: Any, number: int) -> bool:
    return len(await found()) >= number


async def test_everything_is_verified_everywhere(m: Memory) -> None:
    await m.contexts.create("a", "t", id="c2")
    await fill(m, 40)
    report = await m.verify()
    assert report.findings == []


async def test_a_cluster_needs_shards(cluster: ClusterSetup, root: str) -> None:
    async with connect(on(cluster.url, root)) as k:
        with pytest.raises(SettingsError, match=r"memory\.shards = 1 does not work on a cluster"):
            await k.memory.create("note", 1)


async def test_writing_goes_on_over_a_failover_and_indexes_stay_exact(fresh_sentinel: SentinelSetup, root: str) -> None:
    async with connect(on(fresh_sentinel.url, root)) as k:
        m, stop, written = k.memory, asyncio.Event(), 0

        async def write(number: int) -> None:
            nonlocal written
            step = 0
            while not stop.is_set():
                step += 1
                try:
                    await m.put(f"i{number}-{step % 20}", f"t{step % 3}", step, context=f"c{step % 5}")
                    if step % 7 == 0:
                        await m.delete(f"i{number}-{step % 20}")
                    written += 1
                except StoreError:
                    await asyncio.sleep(0.05)

        writers = [asyncio.create_task(write(number)) for number in range(4)]
        await eventually(lambda: written > 200, within_s=20)
        former = await asyncio.to_thread(fresh_sentinel.kill_primary)
        primary = await asyncio.to_thread(lambda: fresh_sentinel.wait_for_failover(former, within_s=30))
        reached = written
        await eventually(lambda: written > reached + 100, within_s=30)
        stop.set()
        await asyncio.gather(*writers)
        assert_indexes_exact(primary, root)
        item = await m.create("note", 1, id="after")
        assert item.version == 1
