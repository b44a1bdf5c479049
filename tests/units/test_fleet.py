"""Who is there: units that tell it, and those that are known by their keys alone."""

from __future__ import annotations

import json

import msgspec
import pytest

from kizuna.app import connect
from kizuna.settings import ProcessesSettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import ClusterSetup, SentinelSetup, ServerProcess, eventually
from kizuna.testing.leaks import assert_keys_end_as_declared
from kizuna.units.fleet import Keys, KnownUnit
from kizuna.units.presence import Quantiles, Rates


async def echo(data: bytes) -> bytes:
    return data


def named(settings: Settings, process: str) -> Settings:
    return msgspec.structs.replace(settings, processes=ProcessesSettings(id=process))


def tell(server: ServerProcess, root: str, unit: str, **facts: object) -> None:
    """What a process would write about itself."""
    server.call("SET", f"{root}/{unit}/keep/presence.{facts['process']}", json.dumps(facts), "PX", 15_000)


async def fleet_of(settings: Settings) -> list[KnownUnit]:
    async with connect(settings) as k:
        return await k.units.fleet()


async def test_where_nobody_is_nobody_is_found(settings: Settings) -> None:
    assert await fleet_of(settings) == []


async def test_the_processes_that_are_a_unit_are_found_with_what_they_serve(settings: Settings, root: str) -> None:
    async with (
        connect(named(settings, "web-1")) as one,
        connect(named(settings, "web-2")) as other,
        one.unit("detector").serving(echo),
        other.unit("detector").serving(echo, pattern=f"{root}/*/req/any.*"),
        one.unit("audit").listen(f"{root}/*/err/*"),
    ):

        async def both() -> list[KnownUnit]:
            found = await one.units.fleet()
            return found if [len(unit.processes) for unit in found] == [1, 2] else []

        audit, detector = await eventually(both)

    assert (audit.name, detector.name) == ("audit", "detector")
    assert [process.process for process in detector.processes] == ["web-1", "web-2"]
    assert detector.serves == [f"{root}/*/req/any.*", f"{root}/*/req/detector.*"]
    assert audit.listens == [f"{root}/*/err/*"]
    assert detector.polling is None
    assert detector.seen_s is not None
    assert 0 <= detector.seen_s <= 15


async def test_outsiders_are_known_by_their_keys(settings: Settings, server: ServerProcess, root: str) -> None:
    written = ["req/1", "req/2", "res/3", "err/4", "keep/mode", "keep/claim.x.5", "nonsense/6", "req"]
    for rest in written:
        server.call("SET", f"{root}/unit_a/{rest}", "x", "PX", 5000)
    server.call("SET", f"{root}/Other/REQ/1", "x", "PX", 5000)
    # Neither a string nor theirs.
    server.call("RPUSH", f"{root}/list/keep/1", "x")
    found = await fleet_of(settings)
    for rest in ("unit_a/nonsense/6", "unit_a/req", "list/keep/1", "Other/REQ/1"):
        server.call("DEL", f"{root}/{rest}")

    assert found == [
        KnownUnit(name="other", processes=[], keys=Keys(requests=1)),
        KnownUnit(name="unit_a", processes=[], keys=Keys(requests=2, replies=1, errors=1, kept=1, claims=1)),
    ]
    assert all(unit.is_there for unit in found)
    assert (found[0].serves, found[0].rates, found[0].seen_s, found[0].latency_ms) == ([], Rates(), None, None)


async def test_who_has_left_nothing_but_answers_is_there_no_more(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    for status in ("res", "err"):
        server.call("SET", f"{root}/gone/{status}/1", "x", "PX", 5000)

    [gone] = await fleet_of(settings)
    assert not gone.is_there


async def test_what_processes_tell_is_added_up(settings: Settings, server: ServerProcess, root: str) -> None:
    quick, slow = {"p50": 1.0, "p99": 2.0}, {"p50": 0.5, "p99": 9.0}
    rates = {"requests": 1.5, "served": 2.5}
    tell(server, root, "detector", process="web-1", every_s=5, rates=rates, latency_ms=quick, handling_ms=slow)
    tell(server, root, "detector", process="web-2", every_s=6, rates=rates, latency_ms=slow, polling="it is deaf")

    [unit] = await fleet_of(settings)
    assert unit.rates == Rates(requests=3.0, served=5.0)
    assert unit.latency_ms == Quantiles(p50=0.5, p99=9.0)
    assert unit.handling_ms == Quantiles(p50=0.5, p99=9.0)
    assert unit.polling == "it is deaf"
    # Both were written with 15 s to live: one of them as a whole life, the other as one of which 3 s have passed.
    first, second = (process.seen_s for process in unit.processes)
    assert first is not None
    assert second is not None
    assert 0 <= first <= second - 2.9


@pytest.mark.parametrize("value", ["", "no json", '{"process": 5}', "[]", b"\xff"])
async def test_a_presence_that_cannot_be_read_is_one_all_the_same(
    settings: Settings, server: ServerProcess, root: str, value: str | bytes
) -> None:
    server.call("SET", f"{root}/detector/keep/presence.web-1", value, "PX", 5000)

    [unit] = await fleet_of(settings)
    [process] = unit.processes
    assert (process.process, process.seen_s, process.serves) == ("web-1", None, [])


async def seen_everywhere(url: str, root: str) -> list[str]:
    roots = RootsSettings(system=root, coordination=root, units=root)
    settings = Settings(store=StoreSettings(url=url, timeout_s=10), roots=roots)
    names = [f"unit-{number:02}" for number in range(20)]
    async with connect(settings) as k:
        for name in names[::2]:
            await k.unit(name).keep.set("mode", b"x")
        async with k.unit(names[1]).serving(echo):

            async def all_of_them() -> list[str]:
                found = [unit.name for unit in await k.units.fleet()]
                return found if names[1] in found else []

            return await eventually(all_of_them, within_s=20)


async def test_on_a_cluster_all_are_found(cluster: ClusterSetup, root: str) -> None:
    names = await seen_everywhere(cluster.url, root)

    assert names == sorted([f"unit-{number:02}" for number in range(0, 20, 2)] + ["unit-01"])
    for server in cluster.servers:
        assert_keys_end_as_declared(server, root)


async def test_behind_sentinels_all_are_found(sentinel: SentinelSetup, root: str) -> None:
    names = await seen_everywhere(sentinel.url, root)

    assert names == sorted([f"unit-{number:02}" for number in range(0, 20, 2)] + ["unit-01"])
