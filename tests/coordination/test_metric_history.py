"""The newest value of something, and those before it."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.app import connect
from kizuna.coordination.metrics.history import MetricHistory, Sample, downsample
from kizuna.coordination.metrics.sampler import Sampler, memory_bytes
from kizuna.errors import IllegalName, OutOfMemory, Refused, Undecodable, WrongValue
from kizuna.service import running
from kizuna.settings import KeptSettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import ServerProcess, assert_starts_and_stops, eventually

if TYPE_CHECKING:
    from kizuna.store.client import Store


# A machine that is busy is not what is tested.
PATIENT = hypothesis_settings(deadline=None)


async def test_the_newest_value_is_current_and_all_are_in_the_history(store: Store, root: str) -> None:
    metrics = MetricHistory(store)
    for value in (0.42, 3, -1.5):
        await metrics.record("cpu", value)

    assert await metrics.current("cpu") == -1.5
    assert [sample.value for sample in await metrics.history("cpu")] == [0.42, 3, -1.5]
    assert await store.call("GET", f"{root}:metrics:cpu:current") == b"-1.5"
    [first, *_] = await store.call("XRANGE", f"{root}:metrics:cpu:history", "-", "+")
    assert first[1] == [b"value", b"0.42"]
    assert 604_000 < await store.call("TTL", f"{root}:metrics:cpu:history") <= 604_800


async def test_what_others_write_with_plain_commands_is_read(store: Store, root: str) -> None:
    metrics = MetricHistory(store)
    await store.call("SET", f"{root}:metrics:memory:current", "0.75", "EX", 60)
    await store.call("XADD", f"{root}:metrics:memory:history", "1000-0", "value", "0.5")
    await store.call("XADD", f"{root}:metrics:memory:history", "2000-0", "something", "else")
    await store.call("EXPIRE", f"{root}:metrics:memory:history", 60)

    assert await metrics.current("memory") == 0.75
    assert await metrics.history("memory") == [Sample(1.0, 0.5)]
    assert await metrics.names() == ["memory"]


async def test_the_history_is_bounded_in_number_and_age(store: Store, root: str) -> None:
    metrics, key = MetricHistory(store, most=100), f"{root}:metrics:cpu:history"
    for number in range(300):
        await store.call("XADD", key, f"{number + 1}-0", "value", number)
    await metrics.record("cpu", 1)

    # Old ones go in nodes of a hundred: what shares its node with a new one stays.
    assert await store.call("XLEN", key) < 200
    for number in range(500):
        await metrics.record("cpu", number)
    assert 100 <= await store.call("XLEN", key) < 200
    assert (await metrics.history("cpu"))[0].at_s > 1000


async def test_a_stretch_of_the_history_can_be_asked_for(store: Store, root: str) -> None:
    metrics, key = MetricHistory(store), f"{root}:metrics:cpu:history"
    for second in range(1, 11):
        await store.call("XADD", key, f"{second * 1000}-0", "value", second)
    await store.call("EXPIRE", key, 60)

    def values(samples: list[Sample]) -> list[float]:
        return [sample.value for sample in samples]

    assert values(await metrics.history("cpu", 3, 5)) == [3, 4, 5]
    assert values(await metrics.history("cpu", until_s=2)) == [1, 2]
    assert values(await metrics.history("cpu", since_s=2, most=3)) == [8, 9, 10]
    assert values(await metrics.history("cpu", last_s=3600)) == []
    await metrics.record("cpu", 99)
    assert values(await metrics.history("cpu", last_s=3600)) == [99]


async def test_a_metric_that_nobody_records_has_no_value(store: Store) -> None:
    metrics = MetricHistory(store)

    assert await metrics.current("cpu") is None
    assert await metrics.history("cpu") == []
    assert await metrics.names() == []


@pytest.mark.parametrize("value", [math.nan, math.inf, True, "0.5"])
async def test_only_numbers_are_recorded(store: Store, value: float) -> None:
    with pytest.raises(WrongValue, match="expected a number"):
        await MetricHistory(store).record("cpu", value)


async def test_a_name_that_could_leave_its_place_is_refused(store: Store) -> None:
    with pytest.raises(IllegalName):
        await MetricHistory(store).record("cpu:current", 1)


async def test_a_current_value_that_is_no_number_is_told(store: Store, root: str) -> None:
    await store.call("SET", f"{root}:metrics:cpu:current", "lots", "EX", 60)
    with pytest.raises(Undecodable, match=r"lots.* is not the number"):
        await MetricHistory(store).current("cpu")


async def test_a_history_of_another_type_is_met_before_anything_is_written(store: Store, root: str) -> None:
    await store.call("SET", f"{root}:metrics:cpu:history", "taken", "EX", 60)
    with pytest.raises(Refused, match="WRONGTYPE"):
        await MetricHistory(store).record("cpu", 1)

    assert await MetricHistory(store).current("cpu") is None
    await store.call("DEL", f"{root}:metrics:cpu:history")


async def test_a_full_server_says_so_and_has_nothing_half_done(fresh_server: ServerProcess, root: str) -> None:
    settings = Settings(store=StoreSettings(url=fresh_server.url), roots=RootsSettings(system=root, coordination=root))
    async with connect(settings) as k:
        await k.metrics.record("cpu", 1)
        await k.store.call("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(OutOfMemory):
            await k.metrics.record("cpu", 2)

        assert (await k.metrics.current("cpu"), len(await k.metrics.history("cpu"))) == (1, 1)


async def test_metrics_are_kept_for_as_long_as_is_set(settings: Settings) -> None:
    async with connect(msgspec.structs.replace(settings, kept=KeptSettings(stats_s=120))) as k:
        await k.metrics.record("cpu", 1)

        keys = [f"{settings.roots.coordination}:metrics:cpu:{part}" for part in ("current", "history")]
        assert all([100 < await k.store.call("TTL", key) <= 120 for key in keys])


# drawing


@PATIENT
@given(
    samples=st.lists(st.builds(Sample, st.floats(0, 100), st.floats(-1e6, 1e6)), max_size=50),
    width=st.integers(1, 40),
)
def test_downsampling_keeps_within_the_least_and_the_greatest(samples: list[Sample], width: int) -> None:
    drawn = downsample(samples, width, 0, 100)
    values = [sample.value for sample in samples]
    present = [value for value in drawn if value is not None]

    assert len(drawn) == width
    assert bool(present) == bool(samples)
    assert all(min(values) - 1e-6 <= value <= max(values) + 1e-6 for value in present)


def test_each_stretch_of_time_has_the_mean_of_its_values() -> None:
    samples = [Sample(0, 1), Sample(1, 3), Sample(6, 5), Sample(10, 7), Sample(11, 1000)]

    assert downsample(samples, 5, 0, 10) == [2, None, None, 5, 7]
    assert downsample([Sample(5, 1)], 1, 5, 5) == [1]


# the sampler


async def test_a_sampler_records_this_process_and_its_machine(store: Store) -> None:
    metrics = MetricHistory(store)
    async with running(Sampler(metrics, every_s=0.01)):
        assert await metrics.names() == ["cpu", "load", "memory"]
        assert (await metrics.current("memory") or 0) > 1_000_000

        async def goes_on() -> bool:
            return len(await metrics.history("cpu")) >= 3

        await eventually(goes_on)


async def test_samplers_with_prefixes_do_not_mix(store: Store) -> None:
    metrics = MetricHistory(store)
    async with running(Sampler(metrics, prefix="web-1"), Sampler(metrics, prefix="web-2")):
        pass

    assert [name for name in await metrics.names() if name.endswith("cpu")] == ["web-1.cpu", "web-2.cpu"]


async def test_a_sampler_starts_and_stops_again_and_again(store: Store) -> None:
    await assert_starts_and_stops(lambda: Sampler(MetricHistory(store)), times=10)


async def test_a_sampler_outlives_a_server_that_is_away(fresh_server: ServerProcess, root: str) -> None:
    settings = Settings(
        store=StoreSettings(url=fresh_server.url, timeout_s=2, reconnect_longest_s=0.1),
        roots=RootsSettings(system=root, coordination=root),
    )
    async with connect(settings) as k, running(Sampler(k.metrics, every_s=0.02)):
        await asyncio.to_thread(fresh_server.stop)
        await asyncio.to_thread(fresh_server.start)
        fresh_server.call("DEL", f"{root}:metrics:cpu:history")

        await eventually(lambda: fresh_server.call("EXISTS", f"{root}:metrics:cpu:history"))


def test_memory_is_in_bytes() -> None:
    assert 1_000_000 < memory_bytes() < 100_000_000_000
