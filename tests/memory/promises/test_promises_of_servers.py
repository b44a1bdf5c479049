"""Ways in which a memory like this breaks, each as the opposite that must hold here; all that is about the server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.memory.exactness import assert_indexes_exact
from tests.memory.finding import ids
from tests.memory.promises.beginnings import item_key, on

from kizuna.app import connect
from kizuna.errors import (
    StoreError,
    UnsafeServer,
)
from kizuna.memory.memory import Memory
from kizuna.settings import MemorySettings, RootsSettings, Settings, StoreSettings
from kizuna.store.keys import key_slot
from kizuna.testing import ClusterSetup, ServerProcess, eventually
from kizuna.testing.leaks import scan

# -- room ------------------------------------------------------------------------------------------------------------


async def test_making_room_never_lengthens_a_life(fresh_server: ServerProcess, root: str) -> None:
    """It shortens what has low priority and would live longer, wherever that is written; and only that."""
    with_budget = {"item_least_s": 0.05, "shortened_s": 100, "low_priority": 3, "pressure_every_s": 600.0}
    async with connect(on(fresh_server, root, **with_budget, budget_bytes=10**9)) as k:
        lives = [(priority, ttl_s) for priority in (1, 2, 3, 4, 10) for ttl_s in (10, 1000)]
        for priority, ttl_s in lives * 12:
            await k.memory.create("note", "x" * 1000, priority=priority, ttl_s=ttl_s)
        before = {item.id: item async for item in k.memory.all()}
        used = (await k.memory.pressure()).root_bytes
        assert used is not None

    # As full as is enough for shortening, and not for removing.
    squeezed = {**with_budget, "budget_bytes": round(used / 0.85)}
    async with connect(on(fresh_server, root, **squeezed)) as k:
        at = await k.store.time_s()
        await k.memory.relieve()
        after = {item.id: item async for item in k.memory.all()}

    assert after.keys() == before.keys()
    for id_, item in after.items():
        was = before[id_]
        if was.priority <= 3 and was.ttl_s > 100:
            assert at + 99 <= item.expires_at <= at + 130
        else:
            assert item.expires_at == was.expires_at
    assert_indexes_exact(fresh_server, root)


async def test_a_server_without_a_limit_is_never_in_need(fresh_server: ServerProcess, root: str) -> None:
    assert fresh_server.call("CONFIG", "GET", "maxmemory")[1] == b"0"
    async with connect(on(fresh_server, root, item_least_s=0.05)) as k:
        items = [await k.memory.create("note", "x" * 1000, priority=1) for _ in range(50)]
        pressure = await k.memory.pressure()
        await k.memory.relieve()

        assert 0 <= pressure.ratio < 0.8
        assert [item and item.expires_at for item in await k.memory.get_many([item.id for item in items])] == [
            item.expires_at for item in items
        ]


@pytest.mark.parametrize("limit", ["2000000000", "1900mb", "2gb"])
async def test_how_full_a_server_is_comes_from_bytes_and_not_from_rounded_texts(
    fresh_server: ServerProcess, root: str, limit: str
) -> None:
    fresh_server.call("CONFIG", "SET", "maxmemory", limit)
    async with connect(on(fresh_server, root)) as k:
        pressure = await k.memory.pressure()

    info = fresh_server.info("memory")
    assert pressure.ratio == pytest.approx(int(info["used_memory"]) / int(info["maxmemory"]), abs=0.05)


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
async def test_nothing_is_remembered_where_a_full_server_throws_anything_away(root: str, policy: str) -> None:
    with ServerProcess(config={"maxmemory-policy": policy, "maxmemory": 100_000_000}) as unsafe:
        with pytest.raises(UnsafeServer):
            async with connect(on(unsafe, root)) as k:
                await k.memory.create("note", 1)
        assert unsafe.call("DBSIZE") == 0


async def test_of_two_who_make_room_neither_ends_the_turn_of_the_other(fresh_server: ServerProcess, root: str) -> None:
    """Whoever comes second leaves the mark of the first alone."""
    mark = f"{root}:memory:relief"
    async with connect(on(fresh_server, root, budget_bytes=1)) as k:
        item = await k.memory.create("note", 1)
        fresh_server.call("SET", mark, "somebody else", "PX", 60_000)
        await k.memory.relieve()
        assert await k.memory.get(item.id) is not None

    assert fresh_server.call("GET", mark) == b"somebody else"


# -- clusters --------------------------------------------------------------------------------------------------------


async def test_what_belongs_together_is_in_one_slot_of_a_cluster(cluster: ClusterSetup, root: str) -> None:
    roots = RootsSettings(system=root, coordination=root, units=root, memory=root)
    spread = MemorySettings(shards=5, item_least_s=0.05, context_least_s=0.05)
    settings = Settings(store=StoreSettings(url=cluster.url), roots=roots, memory=spread)
    async with connect(settings) as k:
        m = k.memory
        for number in range(12):
            await m.contexts.create("Talk", "chat", id=f"c{number}")
            await m.create("note", number, id=f"n{number}", context=f"c{number}", depends_on=["prices"])
        await m.move("n0", "c7")
        await m.update("n1", type="todo")
        assert await m.contexts.delete("c2") is True

        async def all_but_that_of_the_context() -> bool:
            return sorted(await ids(m)) == sorted(f"n{number}" for number in range(12) if number != 2)

        await eventually(all_but_that_of_the_context)
        assert await ids(m, context="c7") in (["n0", "n7"], ["n7", "n0"])
        replies = await k.store.call_each_primary("KEYS", f"{{{root}:*")
        by_shard: dict[bytes, set[int]] = {}
        for key in (key for keys in replies.values() for key in keys):
            by_shard.setdefault(key[: key.index(b"}") + 1], set()).add(key_slot(key))
        for key in (key for keys in replies.values() for key in keys):
            await k.store.call("DEL", key)
    assert len(by_shard) > 1
    assert all(len(slots) == 1 for slots in by_shard.values())


# -- the server goes away --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backed_up", [False, True], ids=["alone", "with a backup"])
async def test_a_plain_miss_is_a_miss_and_what_was_deleted_stays_so(
    brief: Settings, tmp_path: Path, server: ServerProcess, root: str, backed_up: bool
) -> None:
    memory = msgspec.structs.replace(brief.memory, backup_folder=str(tmp_path) if backed_up else "")
    async with connect(msgspec.structs.replace(brief, memory=memory)) as k:
        await k.memory.create("note", 1, id="deleted")
        await k.memory.create("note", 1, id="brief", ttl_s=0.05)
        assert await k.memory.delete("deleted") is True
        await eventually(lambda: server.call("EXISTS", item_key(root, "brief")) == 0)

        assert await k.memory.get_many(["deleted", "brief", "never"]) == [None, None, None]
        page = await k.memory.list(type="note")
        assert (page.items, page.from_backup) == ([], False)


async def test_memory_works_on_when_the_server_was_away(fresh_server: ServerProcess, root: str) -> None:
    async with connect(on(fresh_server, root, item_least_s=0.05)) as k:
        m = k.memory
        await m.create("note", 1, id="a")
        await m.create("note", 1, id="brief", ttl_s=0.3)
        await asyncio.to_thread(fresh_server.restart)

        async def works() -> bool:
            try:
                return bool((await m.put("b", "note", 2)).content == 2)
            except StoreError:
                return False

        await eventually(works, within_s=20)
        assert await ids(m, type="note", text="") in (["a", "b"], ["a", "brief", "b"])
        # Those who sweep are there again, too.
        await eventually(
            lambda: fresh_server.call("ZSCORE", f"{root}:memory:short:idx:expiry", "brief") is None, within_s=20
        )
        await eventually(lambda: assert_indexes_exact(fresh_server, root), within_s=20)


# -- tests themselves ------------------------------------------------------------------------------------------------


async def test_a_test_of_memory_keeps_to_a_root_and_a_server_of_its_own(
    m: Memory, settings: Settings, server: ServerProcess, root: str
) -> None:
    await m.create("note", 1)

    assert settings.roots.memory == root != RootsSettings().memory
    assert settings.store.url == server.url != StoreSettings().url
    with server.connect() as conversation:
        assert [key for key in scan(conversation, "*") if root.encode() not in key and b"scratch-" not in key] == []
