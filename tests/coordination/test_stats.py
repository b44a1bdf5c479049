"""Counters and histograms that many add to, by the server's day and hour."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec
import pytest

from kizuna.app import connect
from kizuna.coordination.stats import Stats
from kizuna.coordination.stats import gathering as gathering_module
from kizuna.coordination.stats.histograms import Histogram
from kizuna.errors import IllegalName, OutOfMemory, PermissionDenied, Refused, StoreError, WrongValue
from kizuna.settings import CoordinationSettings, KeptSettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import MovableClock, ServerProcess, eventually

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.testing.fixtures import MakeProxy


def day_key(root: str, category: str = "issues", day: date | None = None) -> str:
    return f"{root}:stats:{category}:daily:{day or datetime.now(UTC).date()}"


async def today(stats: Stats, category: str = "issues") -> dict[str, float]:
    return (await stats.last_days(category, 1))[0].figures.counters


# counting


async def test_what_is_counted_is_in_the_hash_of_the_day_and_of_the_hour(store: Store, root: str) -> None:
    stats = Stats(store)
    await stats.count("issues", "completed")
    await stats.count("issues", "completed", 2)

    [day] = await stats.last_days("issues", 1)
    assert day.figures.counters == {"completed": 3}
    assert await store.call("HGETALL", day_key(root, day=day.day)) == {b"completed": b"3"}
    of_hours = await store.call("HGETALL", f"{root}:stats:issues:hourly")
    newest = of_hours.pop(b"hour")
    assert sum(map(int, of_hours.values())) == 3
    assert newest + b" completed" in of_hours
    assert 604_000 < await store.call("TTL", day_key(root, day=day.day)) <= 604_800
    assert 604_000 < await store.call("TTL", f"{root}:stats:issues:hourly") <= 604_800


async def test_what_others_add_with_plain_commands_counts_too(store: Store, root: str) -> None:
    stats = Stats(store)
    await stats.count("issues", "completed")
    day = await stats.today()
    await store.call("HINCRBY", day_key(root, day=day), "completed", 41)
    await store.call("HINCRBY", day_key(root, day=day), "took_ms <=11.31", 5)
    await store.call("HSET", day_key(root, day=day), "note", "not a number")
    await stats.count("issues", "completed")

    [found] = await stats.last_days("issues", 1)
    assert found.figures.counters == {"completed": 43}
    assert found.figures.histograms["took_ms"].percentile(50) == 11.31


async def test_whole_numbers_stay_whole_and_fractions_are_added_to_them(store: Store) -> None:
    stats = Stats(store)
    await stats.count("issues", "cost", 2**53)
    await stats.count("issues", "cost", 1)
    await stats.count("issues", "spent", 1)
    await stats.count("issues", "spent", 0.25)
    await stats.count("issues", "spent", -1)

    assert await today(stats) == {"cost": 2**53 + 1, "spent": 0.25}


async def test_a_histogram_tells_what_was_observed(store: Store) -> None:
    stats = Stats(store)
    values = [0, 1.5, 12.5, 12.5, 900]
    for value in values:
        await stats.observe("performance", "took_ms", value)

    assert (await stats.totals("performance")).histograms == {"took_ms": Histogram.of(values)}


async def test_ten_categories_are_listed_once_each(store: Store) -> None:
    stats = Stats(store)
    for number in range(10):
        await stats.count(f"category-{number}", "done")

    assert await stats.categories() == [f"category-{number}" for number in range(10)]


ADD_FIFTY = """
import asyncio, sys
from kizuna.app import connect
from kizuna.settings import RootsSettings, Settings, StoreSettings

async def main(url, root):
    settings = Settings(store=StoreSettings(url=url), roots=RootsSettings(system=root, coordination=root))
    async with connect(settings) as k, k.stats.gathering(every_s=0.01) as gathered:
        for number in range(50):
            await k.stats.count("issues", "completed")
            gathered.count("issues", "gathered", 3)
            await k.stats.observe("issues", "took_ms", number)
            gathered.observe("issues", "took_ms", number)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_eight_processes_lose_nothing(server: ServerProcess, root: str, store: Store) -> None:
    command = [sys.executable, "-c", ADD_FIFTY, server.url, root]
    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(8)]
    assert [await process.wait() for process in processes] == [0] * 8

    total = await Stats(store).totals("issues")
    assert total.counters == {"completed": 400, "gathered": 1200}
    assert total.histograms == {"took_ms": Histogram.of([*range(50)] * 16)}


@pytest.mark.parametrize("category", ["", "a:b", "a b", "*"])
async def test_a_category_that_is_no_name_is_refused(store: Store, category: str) -> None:
    with pytest.raises(IllegalName, match="category"):
        await Stats(store).count(category, "done")
    with pytest.raises(IllegalName, match="category"):
        Stats(store).gathering().count(category, "done")


# whose time it is


@pytest.mark.parametrize("wrong_by_s", [-86_400 * 365, -3_600, 3_600, 86_400 * 365])
async def test_a_clock_that_is_wrong_writes_into_no_other_day(store: Store, root: str, wrong_by_s: float) -> None:
    stats = Stats(store, clock=MovableClock(time.time() + wrong_by_s))
    before = await stats.today()
    await stats.count("issues", "completed")
    await stats.count("issues", "completed")
    after = await stats.today()

    keys = await store.call("KEYS", f"{root}:stats:issues:daily:*")
    assert {key.decode().rpartition(":")[2] for key in keys} <= {before.isoformat(), after.isoformat()}
    assert sum([int(await store.call("HGET", key, "completed")) for key in keys]) == 2


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
async def test_the_day_is_that_of_the_time_zone(settings: Settings, zone: str) -> None:
    """These two are 25 hours apart: at any time, it is another day there."""
    there = msgspec.structs.replace(settings, coordination=CoordinationSettings(time_zone=zone))
    async with connect(there) as k:
        before = datetime.now(ZoneInfo(zone)).date()
        await k.stats.count("issues", "completed")
        [day] = await k.stats.last_days("issues", 1)

        assert day.day in (before, datetime.now(ZoneInfo(zone)).date())
        assert (await k.stats.totals("issues")).counters == {"completed": 1}


async def test_hours_that_are_too_old_are_removed_by_the_first_in_a_new_hour(store: Store, root: str) -> None:
    stats, key = Stats(store), f"{root}:stats:issues:hourly"
    await store.call("HSET", key, "hour", "2020-01-01T00", "2020-01-01T00 done", 7, "2020-01-01T00 t <=1", 3, "note", 1)
    await stats.count("issues", "done")

    fields = await store.call("HKEYS", key)
    assert len(fields) == 3
    assert b"note" in fields
    assert not [field for field in fields if field.startswith(b"2020")]


# ranges


async def test_ranges_name_every_day_and_add_up(store: Store, root: str) -> None:
    stats, today_ = Stats(store), await Stats(store).today()
    for back in (0, 1, 3):
        await store.call("HINCRBY", day_key(root, day=today_ - timedelta(days=back)), "done", back + 1)
        await store.call("EXPIRE", day_key(root, day=today_ - timedelta(days=back)), 600)
    days = await stats.days("issues", today_ - timedelta(days=3), today_)

    assert [day.figures.counters.get("done") for day in days] == [4, None, 2, 1]
    assert [day.day for day in days] == [today_ - timedelta(days=back) for back in (3, 2, 1, 0)]
    assert (await stats.totals("issues")).counters == {"done": 7}
    assert (await stats.totals("issues", today_, today_)).counters == {"done": 1}
    assert len(await stats.days("issues")) == 7


async def test_hours_are_told_from_the_first_to_this_one(store: Store) -> None:
    stats = Stats(store)
    await stats.count("issues", "done", 5)
    hours = await stats.last_hours("issues", 3)

    assert len(hours) == 3
    assert sum(hour.figures.counters.get("done", 0) for hour in hours) == 5
    assert await stats.hours("nothing", datetime(2025, 6, 19, tzinfo=UTC), datetime(2025, 6, 18, tzinfo=UTC)) == []


async def test_a_range_that_must_be_a_mistake_is_refused(store: Store) -> None:
    with pytest.raises(WrongValue, match="the range cannot be 739"):
        await Stats(store).days("issues", date(1, 1, 1))


# gathering


async def test_what_is_gathered_is_sent_by_and_by_and_at_the_end(store: Store) -> None:
    stats = Stats(store)
    async with stats.gathering(every_s=0.01) as gathered:
        gathered.count("issues", "done", 2)
        gathered.observe("issues", "took_ms", 5)

        async def sent() -> bool:
            return await today(stats) == {"done": 2}

        await eventually(sent)
        gathered.count("issues", "done")

    assert await today(stats) == {"done": 3}


async def test_a_lost_answer_does_not_count_twice(settings: Settings, proxy: MakeProxy, store: Store) -> None:
    chaos = await proxy()
    url = msgspec.structs.replace(settings, store=StoreSettings(url=chaos.url, timeout_s=5))
    async with connect(url) as k:
        await k.stats.count("issues", "warm-up")
        async with k.stats.gathering(every_s=60) as gathered:
            for number in range(3):
                gathered.count("issues", "done")
                gathered.observe("issues", "took_ms", number)
                chaos.drop_replies(1, then="cut")
                await gathered.flush()

    total = await Stats(store).totals("issues")
    assert total.counters == {"done": 3, "warm-up": 1}
    assert total.histograms == {"took_ms": Histogram.of(range(3))}


async def test_while_the_server_is_away_counts_wait_and_add_up(fresh_server: ServerProcess, root: str) -> None:
    settings = Settings(
        store=StoreSettings(url=fresh_server.url, timeout_s=2, reconnect_longest_s=0.1),
        roots=RootsSettings(system=root, coordination=root),
    )
    async with connect(settings) as k, k.stats.gathering(every_s=60) as gathered:
        gathered.count("issues", "done")
        await asyncio.to_thread(fresh_server.stop)
        with pytest.raises(StoreError):
            await gathered.flush()
        gathered.count("issues", "done", 2)
        with pytest.raises(StoreError):
            await gathered.flush()
        await asyncio.to_thread(fresh_server.start)

        async def flushed() -> bool:
            try:
                await gathered.flush()
            except StoreError:
                return False
            return True

        await eventually(flushed)
        assert await today(k.stats) == {"done": 3}


async def test_many_counters_are_sent_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering_module, "_MOST_ROWS", 7)
    async with Stats(store).gathering() as gathered:
        for number in range(30):
            gathered.count("issues", f"counter-{number}", number + 1)

    assert await today(Stats(store)) == {f"counter-{number}": number + 1 for number in range(30)}


@pytest.mark.parametrize("by", [1.5, True, 2**53 + 1])
async def test_only_whole_numbers_are_gathered(store: Store, by: int) -> None:
    with pytest.raises(WrongValue, match="a whole number"):
        Stats(store).gathering().count("issues", "done", by)


async def test_a_field_that_is_no_number_is_told_and_the_others_count(
    store: Store, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    stats = Stats(store)
    await stats.count("issues", "fine")
    await store.call("HSET", day_key(root, day=await stats.today()), "broken", "abc")
    with pytest.raises(Refused, match=r"broken of .* is no number"):
        await stats.count("issues", "broken")
    async with stats.gathering() as gathered:
        gathered.count("issues", "broken")
        gathered.count("issues", "fine")

    assert await today(stats) == {"fine": 2}
    assert "stats not added" in caplog.text


# trouble


async def test_a_key_of_another_type_is_met_before_anything_is_written(store: Store, root: str) -> None:
    await store.call("SET", f"{root}:stats:issues:hourly", "taken", "EX", 60)
    with pytest.raises(Refused, match="WRONGTYPE"):
        await Stats(store).count("issues", "done")

    assert await store.call("KEYS", f"{root}:stats:issues:daily:*") == []
    await store.call("DEL", f"{root}:stats:issues:hourly")


async def test_a_full_server_says_so_and_has_nothing_half_done(fresh_server: ServerProcess, root: str) -> None:
    settings = Settings(store=StoreSettings(url=fresh_server.url), roots=RootsSettings(system=root, coordination=root))
    async with connect(settings) as k:
        await k.stats.count("issues", "done")
        await k.store.call("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(OutOfMemory):
            await k.stats.observe("issues", "took_ms", 5)
        await k.store.call("CONFIG", "SET", "maxmemory", "0")

        [day] = await k.stats.last_days("issues", 1)
        assert (day.figures.counters, day.figures.histograms) == ({"done": 1}, {})


async def test_a_denied_key_is_named_and_nothing_is_written(root: str) -> None:
    rules = f"on >secret ~{root}:stats:mine:* ~{root}:stats-flushes:* ~{root}:canary:* &* +@all"
    with ServerProcess(users={"counter": rules}) as server:
        store = StoreSettings(url=server.url, username="counter", password="secret")  # type: ignore[arg-type]
        async with connect(Settings(store=store, roots=RootsSettings(system=root, coordination=root))) as k:
            await k.stats.count("mine", "done")
            with pytest.raises(PermissionDenied):
                await k.stats.count("yours", "done")

            assert await today(k.stats, "mine") == {"done": 1}


async def test_stats_are_kept_for_as_long_as_is_set(settings: Settings) -> None:
    briefly = msgspec.structs.replace(settings, kept=KeptSettings(stats_s=120))
    async with connect(briefly) as k:
        await k.stats.count("issues", "done")
        day = await k.stats.today()

        key = day_key(settings.roots.coordination, day=day)
        assert 100 < await k.store.call("TTL", key) <= 120
        assert len(await k.stats.days("issues")) == 1
