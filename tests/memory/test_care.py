"""What memory tells about itself: what it has done, how it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.errors import ItemExists, ItemMissing, OutOfMemory, Undecodable, Unreachable, VersionConflict
from kizuna.memory.care import Care
from kizuna.memory.counts import Counts, measures_of, outcome_of
from kizuna.memory.health import check_memory, health_of
from kizuna.memory.item import ItemChange, More, NewItem
from kizuna.memory.keepers import Keeper
from kizuna.memory.pressure import Pressure
from kizuna.memory.query import Query
from kizuna.metrics import Histogram, Measure, Metrics
from kizuna.settings import MemorySettings, Settings, StoreSettings
from kizuna.store.health.info import Health
from kizuna.store.keys import Roots
from kizuna.testing import ServerProcess, eventually


@pytest.fixture
async def quiet(settings: Settings) -> AsyncIterator[Kizuna]:
    """Nothing is done but what the test does."""
    memory = MemorySettings(sweep_every_s=3600, pressure_every_s=3600)
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        yield k


@pytest.fixture
def care(quiet: Kizuna, root: str) -> Care:
    return Care(quiet.store, Roots(root))


@pytest.fixture
def keeper(quiet: Kizuna, care: Care) -> Keeper:
    return care.counted(quiet.memory.server)


def new(id_: str, **options: object) -> NewItem:
    usual = NewItem(id=id_, type="note", context="global", priority=5, content=b"1", metadata=b"{}", ttl_ms=90_000,
                    more=More(), token=f"of-{id_}")  # fmt: skip
    return msgspec.structs.replace(usual, **options)


async def test_what_is_asked_is_counted_by_what_it_came_to(keeper: Keeper, care: Care) -> None:
    await keeper.write(new("a"))
    with pytest.raises(ItemExists):
        await keeper.write(new("a", token="another"))
    await keeper.write(new("a", token="third", replaces=True))
    await keeper.read(["a", "b", "c"])
    with pytest.raises(VersionConflict):
        await keeper.change(ItemChange(id="a", token="x", expected_version=7, content=b"2"))
    with pytest.raises(ItemMissing):
        await keeper.touch("b", None)
    await keeper.list(Query())
    assert await keeper.remove("a", None)

    came_to = {name: {"done": tally.done, **tally.others} for name, tally in care.counts.tallies.items()}
    assert {name: words for name, words in came_to.items() if any(words.values())} == {
        "create": {"done": 1, "exists": 1},
        "put": {"done": 1},
        "get": {"done": 1},
        "update": {"done": 0, "conflict": 1},
        "touch": {"done": 0, "missing": 1},
        "list": {"done": 1},
        "delete": {"done": 1},
    }
    assert (care.counts.hits, care.counts.misses) == (1, 2)
    assert care.counts.tallies["create"].latency.count == 2
    assert 0 < care.counts.tallies["create"].latency.sum < 60


async def test_of_many_each_is_counted(keeper: Keeper, care: Care) -> None:
    await keeper.write_many([new("a"), new("b"), new("a", token="again")])
    await keeper.remove_many(["a", "b"])

    create, delete = care.counts.tallies["create"], care.counts.tallies["delete"]
    assert (create.done, create.others, delete.done) == (2, {"exists": 1}, 2)
    assert care.counts.tallies["create_many"].latency.count == 1


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (ItemMissing("a"), "missing"),
        (VersionConflict("item", "a", 1, 2), "conflict"),
        (Unreachable("gone", "here", "wait"), "unreachable"),
        (OutOfMemory("full", "here", "wait"), "refused"),
        (Undecodable("JSON", "no", b"x"), "failed"),
        (asyncio.CancelledError(), "cancelled"),
        (ZeroDivisionError(), "failed"),
    ],
)
def test_there_are_few_words_for_what_it_came_to(error: BaseException, word: str) -> None:
    assert outcome_of(error) == word


def test_a_sweep_is_counted_and_its_lag_told() -> None:
    counts = Counts()
    assert counts.seconds_since_sweep is None

    counts.observe_sweep(ended=3, late_ms=250, settled=2)
    counts.observe_sweep(ended=1, late_ms=100, settled=0)

    assert (counts.sweeps, counts.swept, counts.settled, counts.sweep_late_s) == (2, 4, 2, 0.1)
    assert counts.seconds_since_sweep is not None
    assert counts.seconds_since_sweep >= 0


async def test_everything_is_on_the_page_of_metrics(keeper: Keeper, care: Care, quiet: Kizuna) -> None:
    await keeper.write(new("a"))
    await keeper.read(["a"])
    care.counts.observe_sweep(ended=1, late_ms=20, settled=0)
    await care.watch.step(quiet.store)

    page = Metrics(care.measures).page()[0].decode()

    assert 'kizuna_memory_operations_total{operation="create",outcome="done"} 1.0' in page
    assert 'kizuna_memory_operation_seconds_count{operation="create"} 1.0' in page
    for line in ("hits_total 1.0", "misses_total 0.0", "swept_total 1.0", "sweep_late_seconds 0.02", "items 1.0",
                 "contexts 0.0", "events 1.0", "pressure_level 0.0", "evicted_total 0.0"):  # fmt: skip
        assert f"kizuna_memory_{line}" in page
    assert "\nkizuna_memory_pressure_ratio " in page


def test_measures_of_one_name_stand_together() -> None:
    counts = Counts()
    for operation in ("get", "create", "get"):
        counts.tally(operation).succeed(0.001)

    names = [measure.name for measure in measures_of(counts)]

    assert names == sorted(names, key=names.index)
    assert sum(isinstance(measure.value, Histogram) for measure in measures_of(counts)) == 2


async def test_what_the_backup_counts_is_among_the_measures(quiet: Kizuna, root: str) -> None:
    def of_backup() -> list[Measure]:
        return [Measure("gauge", "kizuna_memory_backup_items", "In it.", 7)]

    care = Care(quiet.store, Roots(root), backup_measures=of_backup)

    assert "kizuna_memory_backup_items" in [measure.name for measure in care.measures()]
    assert (await care.health()).backup == {"kizuna_memory_backup_items": 7}


async def test_a_memory_that_works_is_healthy(quiet: Kizuna, care: Care) -> None:
    await quiet.memory.create("note", 1)
    await quiet.memory.contexts.create("Chat", "chat")
    care.counts.observe_sweep(ended=0, late_ms=0, settled=0)

    health = await care.health()

    assert (health.status, health.items, health.contexts, health.problems) == ("healthy", 1, 1, ())
    told = json.loads(json.dumps(health.as_dict()))
    assert told["responseTime"] > 0
    assert told["memoryUsage"] > 0
    assert told["secondsSinceSweep"] >= 0
    assert told["connectedClients"] >= 1


async def test_a_server_that_is_gone_is_told_not_raised() -> None:
    with ServerProcess() as server:
        async with connect(Settings(store=StoreSettings(url=server.url, timeout_s=2))) as k:
            server.kill()
            health = await check_memory(k.store, Roots("m"))

    assert health.status == "unhealthy"
    assert len(health.problems) == 1
    assert "items" not in health.as_dict()


SERVER = Health("healthy", response_time=1.0, memory_usage=2.0, uptime=3, connected_clients=4)


@pytest.mark.parametrize(
    ("ratio", "since_sweep_s", "problems"), [(0.5, 0.2, 0), (0.95, None, 0), (1.02, 0.2, 1), (0.5, 60.0, 1)]
)
def test_no_room_and_no_sweeps_are_problems(ratio: float, since_sweep_s: float | None, problems: int) -> None:
    pressure = Pressure(used=int(ratio * 100), limit=100, ratio=ratio, level="calm", items=0)

    health = health_of(SERVER, pressure, 0, since_sweep_s, {})

    assert len(health.problems) == problems
    assert health.status == ("unhealthy" if problems else "healthy")


async def test_pressure_by_hand_is_what_the_measures_tell(quiet: Kizuna, care: Care) -> None:
    await quiet.memory.create("note", 1)

    pressure = await care.pressure()
    relief = await care.relieve()

    assert (pressure.level, pressure.items, relief.removed) == ("calm", 1, 0)
    assert care.counts.items == 1
    assert json.loads(json.dumps(relief.as_dict()))["pressure"]["level"] == "calm"
    assert (await care.verify()).exact


async def test_a_program_that_remembers_counts_sweeps_and_watches_by_itself(settings: Settings) -> None:
    memory = MemorySettings(sweep_every_s=0.02, pressure_every_s=0.02, item_least_s=0.01)
    async with connect(msgspec.structs.replace(settings, memory=memory)) as k:
        m = k.memory
        await m.create("note", 1, id="stays")
        await m.create("note", 1, id="goes", ttl_s=0.01)
        assert await m.get("stays") is not None

        def told() -> dict[str, object]:
            return {measure.name: measure.value for measure in m.measures() if not measure.labels}

        def ended() -> object:
            """What ends between the two parts of a sweep is put in order by the second."""
            return told()["kizuna_memory_swept_total"] or told()["kizuna_memory_settled_total"]

        assert await eventually(ended) == 1
        await eventually(lambda: told()["kizuna_memory_items"] == 1)
        assert told()["kizuna_memory_hits_total"] == 1
        assert "kizuna_memory_pressure_ratio" in told()
        health = await m.health()
        assert (health.status, health.items) == ("healthy", 1)
        assert await m.verify()
        assert (await m.pressure()).level == "calm"
        assert (await m.relieve()).removed == 0


async def test_a_full_server_gets_room_by_itself_and_the_backup_has_what_went(tmp_path: Path) -> None:
    config = {"maxmemory": "6mb", "maxmemory-policy": "noeviction"}
    with ServerProcess(config=config) as server:
        memory = MemorySettings(pressure_every_s=0.1, feed_length=500, backup_folder=str(tmp_path))
        async with connect(Settings(store=StoreSettings(url=server.url), memory=memory)) as k:
            m = k.memory
            written, refused = 0, 0
            # Twice as much as there is room for: whoever is refused tries again a little later.
            while written < 900:
                try:
                    await m.create("note", "x" * 8000, priority=written % 10 + 1, ttl_s=3600)
                    written += 1
                except OutOfMemory:
                    refused += 1
                    await asyncio.sleep(0.05)
                assert refused < 1000

            evicted = m.care.counts.evicted
            assert evicted > 0
            assert m.fallback is not None
            spilled = {item.id for item in await m.fallback.backup.spilled()}
            assert len(spilled) >= evicted
            assert await m.verify()
