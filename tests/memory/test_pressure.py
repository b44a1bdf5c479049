"""A server that is nearly full gets room: lives of low priority are shortened, then the lowest and soonest removed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from tests.memory.exactness import assert_indexes_exact

from kizuna.app import Kizuna, connect
from kizuna.errors import BackupNotWritten, OutOfMemory
from kizuna.memory.counts import Counts
from kizuna.memory.item import Item
from kizuna.memory.pressure import Pressure, PressureWatch, Relief, measure, relieve
from kizuna.memory.pressure.candidates import ending_later, priorities, soonest
from kizuna.memory.pressure.measuring import level_of, pressure_of
from kizuna.memory.pressure.relieving import shorten_items
from kizuna.memory.pressure.sizing import estimate_bytes
from kizuna.memory.verifying import verify
from kizuna.settings import MemorySettings, RootsSettings, Settings, StoreSettings
from kizuna.store.keys import Roots
from kizuna.testing import ClusterSetup, ServerProcess

# Nothing is done but what the test does.
ALONE = MemorySettings(sweep_every_s=3600, pressure_every_s=3600)
GIB = 1024**3


class Kept:
    """A backup that keeps what it is given."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    async def spill(self, items: list[Item]) -> None:
        self.items += items


def with_memory(settings: Settings, **options: object) -> Settings:
    return msgspec.structs.replace(settings, memory=msgspec.structs.replace(ALONE, **options))


async def fill(k: Kizuna, count: int, *, size: int = 500, priorities: Iterable[int] = range(1, 11)) -> None:
    """Of each priority as many; each ends later than the one before."""
    among = [*priorities]
    await k.memory.create_many(
        {"type": "note", "content": "x" * size, "id": f"n{n}", "priority": among[n % len(among)], "ttl_s": 4000 + n}
        for n in range(count)
    )


async def fraction(settings: Settings, root: str, share: float) -> int:
    """A budget of which what is there now is this share."""
    async with connect(settings) as k:
        return round(await estimate_bytes(k.store, root) / share)


# -- from numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "limit", "level"),
    [
        (900 * 1024**2, 2 * GIB, "calm"),
        (int(1.7 * GIB), 2 * GIB, "shorten"),
        (int(1.9 * GIB), 2 * GIB, "remove"),
        (3 * GIB, 2 * GIB, "remove"),
    ],
)
def test_the_level_follows_from_bytes(used: int, limit: int, level: str) -> None:
    info = {"used_memory": str(used), "maxmemory": str(limit), "total_system_memory": str(100 * GIB)}

    pressure = pressure_of(["m"], [info], MemorySettings(), items=3, root_bytes=None)

    assert (pressure.level, pressure.used, pressure.limit, pressure.items) == (level, used, limit, 3)
    assert pressure.ratio == pytest.approx(used / limit)


def test_without_maxmemory_the_memory_of_the_machine_is_the_limit() -> None:
    info = {"used_memory": str(85 * GIB), "maxmemory": "0", "total_system_memory": str(100 * GIB)}

    assert pressure_of(["m"], [info], MemorySettings(), items=0, root_bytes=None).level == "shorten"


def test_a_server_that_tells_no_limit_is_calm() -> None:
    assert pressure_of(["m"], [{"used_memory": "5"}], MemorySettings(), items=0, root_bytes=None).level == "calm"


def test_buffers_that_do_not_count_for_the_server_do_not_count_here() -> None:
    info = {"used_memory": "95", "mem_not_counted_for_evict": "20", "maxmemory": "100"}

    assert pressure_of(["m"], [info], MemorySettings(), items=0, root_bytes=None).ratio == 0.75


def test_the_fuller_of_server_and_budget_counts() -> None:
    info = {"used_memory": "50", "maxmemory": "100"}

    pressure = pressure_of(["m"], [info], MemorySettings(budget_bytes=20), items=0, root_bytes=19)

    assert (pressure.used, pressure.limit, pressure.ratio, pressure.level) == (19, 20, 0.95, "remove")
    assert pressure.servers[0].ratio == 0.5


def test_each_primary_has_its_own_level() -> None:
    infos = [{"used_memory": str(used), "maxmemory": "100"} for used in (10, 85, 95)]

    pressure = pressure_of(["a", "b", "c"], infos, MemorySettings(), items=0, root_bytes=None)

    assert [server.level for server in pressure.servers] == ["calm", "shorten", "remove"]
    assert (pressure.level, pressure.ratio) == ("remove", 0.95)


def test_thresholds_are_settings() -> None:
    settings = MemorySettings(shorten_above=0.1, remove_above=0.2)

    assert [level_of(ratio, settings) for ratio in (0.1, 0.11, 0.2, 0.21)] == ["calm", "shorten", "shorten", "remove"]


async def test_what_a_root_uses_is_estimated_well_enough() -> None:
    with ServerProcess() as server:
        settings = Settings(store=StoreSettings(url=server.url), memory=msgspec.structs.replace(ALONE, feed_length=1))
        async with connect(settings) as k:
            await k.memory.create("warm", 1)
            before = int(server.info("memory")["used_memory"])
            news = [
                {"type": f"t{n % 7}", "content": "x" * (n * 37 % 2000), "context": f"c{n % 40}"} for n in range(3000)
            ]
            await k.memory.create_many(news)
            really = int(server.info("memory")["used_memory"]) - before

            assert await estimate_bytes(k.store, settings.roots.memory) == pytest.approx(really, rel=0.25)


# -- who goes first -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("among", [[1], [1, 2], [1, *[2] * 40]], ids=["all", "half", "few"])
async def test_the_soonest_of_a_priority_are_found_in_order(settings: Settings, root: str, among: list[int]) -> None:
    async with connect(with_memory(settings)) as k:
        await fill(k, 700, size=1, priorities=among)
        ends = {item.id: item.expires_at async for item in k.memory.all(priority=1)}
        in_order = sorted(ends, key=lambda id_: ends[id_])

        for most in (5, 1000):
            found = await soonest(k.store, root, "1", most)
            assert [candidate.id.decode() for candidate in found] == in_order[:most]


async def test_those_that_end_later_are_found_whichever_way_is_shorter(settings: Settings, root: str) -> None:
    async with connect(with_memory(settings)) as k:
        await fill(k, 60, size=1, priorities=[1, 2, 2])
        now_ms = await k.store.time_s() * 1000

        for later_s, expected in ((0, 20), (4030, 10), (4057, 1), (9000, 0)):
            found = [id_ async for id_ in ending_later(k.store, root, "1", now_ms + later_s * 1000)]
            assert len(set(found)) == len(found)
            assert abs(len(found) - expected) <= 1


async def test_odd_priorities_have_their_place(settings: Settings, root: str) -> None:
    async with connect(with_memory(settings)) as k:
        await k.store.call("SADD", f"{root}:memory:short:odd-priorities", "0", "-3", "2.5", "high", "99", "")

        assert await priorities(k.store, [root]) == ["-3", "0", "1", "2", "2.5", *"3456789", "10", "99", "high"]


# -- shortening -----------------------------------------------------------------------------------------------------


async def shortened(settings: Settings, root: str) -> tuple[Settings, Relief, dict[str, Item], dict[str, Item]]:
    """A memory of which 85 % is full, before and after."""
    plain = with_memory(settings)
    async with connect(plain) as k:
        await fill(k, 40)
        await k.memory.create("note", 1, id="brief", priority=1, ttl_s=100)
        before = {item.id: item async for item in k.memory.all()}
    pressed = with_memory(settings, budget_bytes=await fraction(plain, root, 0.85), shortened_s=300)
    async with connect(pressed) as k:
        relief = await relieve(k.store, Roots(root))
        after = {item.id: item async for item in k.memory.all()}
    return pressed, relief, before, after


async def test_lives_of_low_priority_are_shortened_and_none_is_lengthened(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    pressed, relief, before, after = await shortened(settings, root)

    low = {id_ for id_, item in before.items() if item.priority <= pressed.memory.low_priority} - {"brief"}
    assert (relief.shortened, relief.removed, relief.spilled) == (len(low), 0, 0)
    assert {id_ for id_ in before if after[id_].expires_at != before[id_].expires_at} == low
    assert all(after[id_].expires_at < before[id_].expires_at for id_ in low)
    assert {id_: item.version for id_, item in after.items()} == {id_: item.version for id_, item in before.items()}
    assert_indexes_exact(server, root)


async def test_a_shortened_life_is_told_once(settings: Settings, root: str) -> None:
    pressed, relief, _, _ = await shortened(settings, root)

    async with connect(pressed) as k:
        again = await relieve(k.store, Roots(root))
        events = (await k.memory.events_since("0", limit=1000)).events
    told = [event for event in events if event.kind == "item:updated"]
    assert again.shortened == 0
    assert len(told) == relief.shortened
    assert {event.reason for event in told} == {"shortened"}


async def test_nothing_is_done_while_there_is_room(settings: Settings, root: str) -> None:
    async with connect(with_memory(settings)) as k:
        await fill(k, 10)

        relief = await relieve(k.store, Roots(root))

        assert relief.pressure.level == "calm"
        assert (relief.shortened, relief.removed) == (0, 0)
        assert not await k.store.call("EXISTS", f"{root}:memory:relief")


# -- removing -------------------------------------------------------------------------------------------------------


async def pressed_for_room(settings: Settings, root: str, *, count: int = 400, share: float = 1.2) -> Settings:
    """A memory that is fuller than it may be."""
    plain = with_memory(settings)
    async with connect(plain) as k:
        await fill(k, count)
    return with_memory(settings, budget_bytes=await fraction(plain, root, share))


async def test_the_lowest_and_soonest_are_removed_until_there_is_room(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    pressed, backup = await pressed_for_room(settings, root), Kept()
    async with connect(pressed) as k:
        before = [item async for item in k.memory.all()]

        relief = await relieve(k.store, Roots(root), backup)

        left = {item.id async for item in k.memory.all()}
        events = (await k.memory.events_since("0", limit=10_000)).events
    assert relief.pressure.ratio <= pressed.memory.remove_above
    # It is enough, and not far more than enough; the estimate behind it is one.
    assert relief.pressure.ratio > 0.6
    in_order = [item.id for item in sorted(before, key=lambda item: (item.priority, item.expires_at))]
    assert [item.id for item in backup.items] == in_order[: relief.removed]
    assert relief.spilled == relief.removed > 40
    assert left == {*in_order[relief.removed :]}
    ended = [event for event in events if event.kind == "item:deleted"]
    assert [event.id for event in ended] == in_order[: relief.removed]
    assert {event.reason for event in ended} == {"evicted"}
    assert_indexes_exact(server, root)


async def test_what_was_changed_after_it_was_spilled_stays(settings: Settings, root: str) -> None:
    pressed = await pressed_for_room(settings, root, count=60)
    async with connect(pressed) as k:
        changed: list[str] = []

        class Slow(Kept):
            async def spill(self, items: list[Item]) -> None:
                if not changed:
                    changed.extend(item.id for item in items)
                    for id_ in changed:
                        await k.memory.update(id_, content="changed")
                await super().spill(items)

        backup = Slow()
        relief = await relieve(k.store, Roots(root), backup)

        kept = await k.memory.get_many(changed)
        assert changed
        assert [item and item.content for item in kept] == ["changed"] * len(changed)
        assert relief.spilled == relief.removed == len(backup.items) - len(changed)


async def test_what_cannot_be_spilled_is_not_removed(settings: Settings, root: str) -> None:
    pressed = await pressed_for_room(settings, root, count=60)

    class Full(Kept):
        async def spill(self, items: list[Item]) -> None:
            raise BackupNotWritten("memory.db", "the disk is full")

    async with connect(pressed) as k:
        with pytest.raises(BackupNotWritten):
            await relieve(k.store, Roots(root), Full())
        assert len([item async for item in k.memory.all()]) == 60
        assert not await k.store.call("EXISTS", f"{root}:memory:relief")


async def test_one_process_at_a_time_makes_room(settings: Settings, root: str) -> None:
    pressed = await pressed_for_room(settings, root)
    async with connect(pressed) as one, connect(pressed) as other:
        reliefs = await asyncio.gather(
            relieve(one.store, Roots(root), Kept()), relieve(other.store, Roots(root), Kept())
        )
        left = len([item async for item in one.memory.all()])

    assert sum(relief.removed for relief in reliefs) == 400 - left
    assert sorted(relief.by_another for relief in reliefs) == [False, True]


async def test_a_turn_that_was_lost_is_not_gone_on_with(settings: Settings, root: str) -> None:
    pressed = await pressed_for_room(settings, root)
    async with connect(pressed) as k:

        class Taken(Kept):
            async def spill(self, items: list[Item]) -> None:
                await super().spill(items)
                await k.store.call("SET", f"{root}:memory:relief", "another", "PX", 60_000)

        relief = await relieve(k.store, Roots(root), Taken())

        assert 0 < relief.removed <= 100
        assert await k.store.get(f"{root}:memory:relief") == b"another"


async def test_the_lowest_of_all_shards_go_first(settings: Settings, root: str) -> None:
    plain, roots = with_memory(settings, shards=3), Roots(root, 3)
    async with connect(plain) as k:
        await k.memory.create_many(
            {"type": "note", "content": "x" * 500, "id": f"n{n}", "context": f"c{n % 9}", "priority": n % 10 + 1}
            for n in range(300)
        )
        uses = sum([await estimate_bytes(k.store, shard) for shard in roots.all])
    async with connect(with_memory(settings, shards=3, budget_bytes=round(uses / 1.05))) as k:
        relief = await relieve(k.store, roots)
        left = [item.priority async for item in k.memory.all()]

        assert relief.pressure.level != "remove"
        assert 0 < relief.removed < 100
        assert [left.count(priority) for priority in range(5, 11)] == [30] * 6
        assert left.count(1) == 0


# -- a server that is full ------------------------------------------------------------------------------------------


async def fill_up(k: Kizuna, server: ServerProcess) -> int:
    """Until it refuses, and will for a while; how many were written."""
    for number in range(100_000):
        try:
            await k.memory.create("note", "x" * 2000, id=f"n{number}", priority=number % 10 + 1)
        except OutOfMemory:
            server.call("CONFIG", "SET", "maxmemory", int(server.info("memory")["used_memory"]) * 95 // 100)
            return number
    raise AssertionError("it took everything")


async def test_a_server_that_refuses_writes_gets_room_again() -> None:
    await refuses_then_has_room("", None)


async def test_a_redis_that_refuses_writes_gets_room_again(redis_binary: str) -> None:
    await refuses_then_has_room(redis_binary, Kept())


async def refuses_then_has_room(binary: str, backup: Kept | None) -> None:
    with ServerProcess(binary=binary, config={"maxmemory": "6mb", "maxmemory-policy": "noeviction"}) as server:
        settings = Settings(store=StoreSettings(url=server.url), memory=msgspec.structs.replace(ALONE, feed_length=500))
        roots = Roots(settings.roots.memory)
        async with connect(settings) as k:
            assert await fill_up(k, server) > 100
            assert (await measure(k.store, roots)).ratio >= 1

            relief = await relieve(k.store, roots, backup)

            assert relief.removed > 100
            assert relief.shortened > 0
            assert relief.spilled == (0 if backup is None else relief.removed)
            assert relief.pressure.ratio <= 0.9
            assert (await k.memory.create("note", "there is room")).version == 1
            report = await verify(k.store, roots, look_again_after_s=0.01)
            assert report.exact, [*map(str, report.findings)]
            assert report.items == await k.memory.count()


async def test_lives_can_be_shortened_on_a_server_that_refuses_writes() -> None:
    with ServerProcess(config={"maxmemory": "6mb", "maxmemory-policy": "noeviction"}) as server:
        settings = Settings(store=StoreSettings(url=server.url), memory=ALONE)
        root = settings.roots.memory
        async with connect(settings) as k:
            written = await fill_up(k, server)
            low = [f"n{number}" for number in range(written) if number % 10 == 0]
            with pytest.raises(OutOfMemory):
                await k.store.call("SET", "more", "x")

            told: dict[str, Any] = {"root": root, "feed_length": 500, "expiry": f"{root}:memory:short:idx:expiry"}
            done = await shorten_items.rows(
                k.store, [{"id": id_} for id_ in low], **told, priority="1", left_ms=100_000
            )

            assert done == [1] * len(low)
            assert {round(item.ttl_s) for item in await k.memory.get_many(low) if item} == {900}
            assert await verify(k.store, Roots(root), look_again_after_s=0.01)


# -- from time to time ----------------------------------------------------------------------------------------------


async def test_the_watch_looks_relieves_and_counts(settings: Settings, root: str) -> None:
    pressed, counts = await pressed_for_room(settings, root), Counts()
    backup = Kept()
    watch = PressureWatch(Roots(root), counts, backup)
    assert [*watch.measures()] == []
    async with connect(pressed) as k:
        await k.memory.contexts.create("Chat", "chat")

        await watch.step(k.store)

        assert counts.evicted == counts.spilled == len(backup.items) > 0
        assert counts.items == await k.memory.count() == 400 - counts.evicted
        assert counts.contexts == 1
        assert counts.events >= 401
    assert isinstance(watch.pressure, Pressure)
    told = {measure.name: measure.value for measure in watch.measures()}
    assert told["kizuna_memory_pressure_ratio"] == watch.pressure.ratio
    assert told["kizuna_memory_pressure_level"] == 1
    assert told["kizuna_memory_budget_bytes"] == pressed.memory.budget_bytes


async def test_each_primary_of_a_cluster_is_measured_and_relieved(cluster: ClusterSetup, root: str) -> None:
    names = RootsSettings(system=root, coordination=root, memory=root)
    plain = Settings(store=StoreSettings(url=cluster.url), roots=names, memory=msgspec.structs.replace(ALONE, shards=6))
    roots = Roots(root, 6)
    async with connect(plain) as k:
        await k.memory.create_many(
            {"type": "note", "content": "x" * 500, "context": f"c{n}", "priority": n % 10 + 1} for n in range(200)
        )
        uses = sum([await estimate_bytes(k.store, shard) for shard in roots.all])
        assert len((await measure(k.store, roots)).servers) == 6
    memory = msgspec.structs.replace(ALONE, shards=6, budget_bytes=round(uses / 1.1))
    async with connect(msgspec.structs.replace(plain, memory=memory)) as k:
        relief = await relieve(k.store, roots, Kept())

        assert relief.removed > 0
        assert relief.pressure.level != "remove"
        assert await verify(k.store, roots, look_again_after_s=0.01)
        await k.memory.delete_many([item.id async for item in k.memory.all()])
