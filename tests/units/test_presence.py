"""Units say that they are there, what they do, and when they leave."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna.app import Kizuna, connect
from kizuna.errors import KizunaError
from kizuna.settings import (
    EventsSettings,
    ProcessesSettings,
    RootsSettings,
    Secret,
    Settings,
    StoreSettings,
    UnitsSettings,
)
from kizuna.store.events import Change
from kizuna.testing import ServerProcess, eventually
from kizuna.units.paths import build_path, parse_path
from kizuna.units.presence import presence_id

OFTEN, SELDOM = UnitsSettings(presence_every_s=0.05), UnitsSettings(presence_every_s=3600)


def with_units(settings: Settings, units: UnitsSettings, process: str = "") -> Settings:
    return msgspec.structs.replace(settings, units=units, processes=ProcessesSettings(id=process))


def presence_of(server: ServerProcess, root: str, unit: str, process: str) -> dict[str, Any]:
    """Nothing in it if there is none."""
    raw = cast("bytes | None", server.call("GET", f"{root}/{unit}/keep/presence.{process}"))
    return {} if raw is None else cast("dict[str, Any]", json.loads(raw))


async def echo(data: bytes) -> bytes:
    return data


# -- coming -------------------------------------------------------------------------------------------------


async def test_who_serves_says_so_at_once(settings: Settings, server: ServerProcess, root: str) -> None:
    async with connect(with_units(settings, SELDOM, "web-1")) as k, k.unit("Detector").serving(echo):
        told = await eventually(lambda: presence_of(server, root, "detector", "web-1"))
        left_ms = cast("int", server.call("PTTL", f"{root}/detector/keep/presence.web-1"))

    assert told["process"] == "web-1"
    assert (told["serves"], told["listens"]) == ([f"{root}/*/req/detector.*"], [])
    assert told["host"]
    assert told["pid"] > 0
    assert told["since"] > 0
    assert told["rates"] == {"requests": 0, "served": 0}
    assert (told["latency_ms"], told["handling_ms"], told["polling"]) == (None, None, None)
    assert 3 * 3600 * 1000 - 60_000 < left_ms <= 3 * 3600 * 1000


async def test_who_listens_says_so_at_once(settings: Settings, server: ServerProcess, root: str) -> None:
    async with connect(with_units(settings, SELDOM, "web-1")) as k, k.unit("audit").listen(f"{root}/*/err/*"):
        told = await eventually(lambda: presence_of(server, root, "audit", "web-1"))

    assert (told["serves"], told["listens"]) == ([], [f"{root}/*/err/*"])


async def test_who_only_asks_says_so_after_a_while_and_not_before(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    async with connect(with_units(settings, SELDOM, "server")) as other, other.unit("detector").serving(echo):
        async with other.store.events.watch(f"{root}/caller/keep/*") as written:
            async with connect(with_units(settings, SELDOM, "shell")) as k:
                await k.unit("caller").request("detector", b"x")
            await other.unit("caller").keep.set("mark", b"the first that was written")
            assert await written.next(timeout_s=10) == Change(f"{root}/caller/keep/mark", "set")

        async with connect(with_units(settings, OFTEN, "web-1")) as k:
            await k.unit("caller").request("detector", b"x")
            told = await eventually(lambda: presence_of(server, root, "caller", "web-1"))

    assert (told["serves"], told["listens"], told["counts"]["requests"]) == ([], [], 1)


async def test_what_was_done_is_told(settings: Settings, server: ServerProcess, root: str) -> None:
    async with connect(with_units(settings, OFTEN, "web-1")) as k, k.unit("detector").serving(echo):
        caller = k.unit("caller")

        async def told() -> bool:
            """Until both tell of it; the rates are those of one interval, so there is to be something in it."""
            await caller.request("detector", b"x")
            asking, serving = (presence_of(server, root, unit, "web-1") for unit in ("caller", "detector"))
            return bool(asking and asking["rates"]["requests"] > 0 and serving and serving["rates"]["served"] > 0)

        await eventually(told)
        asking, serving = (presence_of(server, root, unit, "web-1") for unit in ("caller", "detector"))

    assert 0 < asking["counts"]["replies"] <= asking["counts"]["requests"]
    assert 0 < asking["latency_ms"]["p50"] <= asking["latency_ms"]["p99"]
    assert asking["handling_ms"] is None
    assert serving["counts"]["served"] > 0
    assert 0 < serving["handling_ms"]["p50"] <= serving["handling_ms"]["p99"]
    assert serving["latency_ms"] is None


async def test_what_is_lost_is_said_again(settings: Settings, server: ServerProcess, root: str) -> None:
    async with connect(with_units(settings, OFTEN, "web-1")) as k, k.unit("detector").serving(echo):
        for _ in range(3):
            await eventually(lambda: presence_of(server, root, "detector", "web-1"))
            server.call("DEL", f"{root}/detector/keep/presence.web-1")


async def test_two_processes_that_are_one_unit_are_told_apart(settings: Settings) -> None:
    async with (
        connect(with_units(settings, SELDOM, "Web/1")) as one,
        connect(with_units(settings, SELDOM, "web/1")) as other,
        one.unit("detector").serving(echo),
        other.unit("detector").serving(echo),
    ):

        async def both_are_there() -> bool:
            found = [process.process for unit in await one.units.fleet() for process in unit.processes]
            return found == ["Web/1", "web/1"]

        await eventually(both_are_there)


@given(st.text(max_size=300), st.text(max_size=300))
def test_every_process_has_an_id_of_its_own_that_can_stand_in_a_path(one: str, other: str) -> None:
    path = build_path("detector", "keep", presence_id(one))

    assert parse_path(path).id == presence_id(one)
    assert (presence_id(one) == presence_id(other)) == (one == other)


def test_a_plain_name_is_read_as_it_is() -> None:
    assert presence_id("web-1.example-4711-0a1b2c3d") == "presence.web-1.example-4711-0a1b2c3d"


# -- going --------------------------------------------------------------------------------------------------


async def test_who_stops_serving_is_gone_at_once(settings: Settings, server: ServerProcess, root: str) -> None:
    async with connect(with_units(settings, SELDOM, "web-1")) as k:
        async with k.unit("detector").serving(echo):
            await eventually(lambda: presence_of(server, root, "detector", "web-1"))

        await eventually(lambda: not presence_of(server, root, "detector", "web-1"))


async def test_who_stops_serving_and_still_asks_is_still_there(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    async with connect(with_units(settings, SELDOM, "web-1")) as k:
        unit = k.unit("detector")
        async with unit.serving(echo):
            await unit.request("detector", b"x")

        await eventually(lambda: presence_of(server, root, "detector", "web-1").get("serves") == [])
    await eventually(lambda: not presence_of(server, root, "detector", "web-1"))


async def test_one_of_two_servers_of_a_unit_leaves_the_other_there(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    async with connect(with_units(settings, SELDOM, "web-1")) as k, k.unit("detector").serving(echo):
        async with k.unit("detector").serving(echo, pattern=f"{root}/*/req/other.*"):
            both = [f"{root}/*/req/detector.*", f"{root}/*/req/other.*"]
            await eventually(lambda: presence_of(server, root, "detector", "web-1").get("serves") == both)

        await eventually(lambda: presence_of(server, root, "detector", "web-1").get("serves") == both[:1])


async def test_who_closes_the_connection_is_gone_at_once(settings: Settings, server: ServerProcess, root: str) -> None:
    k = await connect(with_units(settings, SELDOM, "web-1"))
    serving = asyncio.create_task(k.unit("detector").serve(echo))
    await eventually(lambda: presence_of(server, root, "detector", "web-1"))
    await k.units.announcing.aclose()

    await eventually(lambda: not presence_of(server, root, "detector", "web-1"))
    serving.cancel()
    await asyncio.wait([serving])
    await k.aclose()


async def test_who_wants_to_be_unseen_is(settings: Settings, server: ServerProcess, root: str) -> None:
    async with connect(with_units(settings, OFTEN, "web-1")) as k:
        k.units.announcing.is_silent = True
        async with k.unit("detector").serving(echo), connect(with_units(settings, OFTEN, "web-2")) as other:
            async with other.unit("detector").serving(echo):
                await eventually(lambda: presence_of(server, root, "detector", "web-2"))

            assert not presence_of(server, root, "detector", "web-1")


# -- trouble ------------------------------------------------------------------------------------------------


async def test_who_may_not_say_it_works_all_the_same(root: str, caplog: pytest.LogCaptureFixture) -> None:
    paths = " ".join(f"~{root}/{rest}" for rest in ("*/req/*", "*/res/*", "*/err/*", "*/keep/claim.*"))
    caplog.set_level(logging.DEBUG, "kizuna.units")
    user = f"on >secret {paths} ~{root}:* &* +@all"
    with ServerProcess(config={"notify-keyspace-events": "AKE"}, users={"app": user}) as server:
        settings = Settings(
            store=StoreSettings(url=server.url, username="app", password=Secret("secret")),
            roots=RootsSettings(system=root, coordination=root, units=root),
            units=OFTEN,
        )
        async with connect(settings) as k, k.unit("detector").serving(echo):
            await eventually(lambda: "presence not written" in caplog.messages)
            assert await k.unit("caller").request("detector", b"x") == b"x"

    told = [record for record in caplog.records if record.message == "presence not written"]
    assert {record.levelno for record in told} == {logging.DEBUG}


async def test_a_server_that_is_away_does_not_hold_up_the_end(root: str) -> None:
    with ServerProcess() as server:
        roots = RootsSettings(system=root, coordination=root, units=root)
        k = await connect(Settings(store=StoreSettings(url=server.url, timeout_s=30), roots=roots, units=SELDOM))
        k.units.announcing.asks("caller", Told())
        await k.units.announcing.announce(["caller"])
        server.stop()

        async with asyncio.timeout(20):
            await k.units.announcing.aclose()
        async with asyncio.timeout(20):
            await k.aclose()


async def test_who_has_to_look_says_why(root: str) -> None:
    with ServerProcess(users={"app": "on >secret ~* &* +@all -config"}) as server:
        settings = Settings(
            store=StoreSettings(url=server.url, username="app", password=Secret("secret")),
            events=EventsSettings(canary_every_s=0.1, canary_timeout_s=1.5),
            roots=RootsSettings(system=root, coordination=root, units=root),
            units=UnitsSettings(presence_every_s=0.05, poll_every_s=0.05),
            processes=ProcessesSettings(id="web-1"),
        )
        async with connect(settings) as k, k.unit("detector").serving(echo):
            await k.unit("caller").request("detector", b"x")
            for unit in ("detector", "caller"):
                told = await eventually(partial(presence_of, server, root, unit, "web-1"))
                assert "CONFIG SET notify-keyspace-events" in told["polling"]


# -- many ---------------------------------------------------------------------------------------------------


class Told:
    """As far as presence goes, something that a unit is in use for."""

    polling: KizunaError | None = None


async def test_a_thousand_units_are_announced_by_one_task(settings: Settings, server: ServerProcess, root: str) -> None:
    async with connect(with_units(settings, SELDOM, "web-1")) as k:
        before = len(asyncio.all_tasks())
        for number in range(1000):
            k.units.announcing.asks(f"unit-{number}", Told())
        assert len(asyncio.all_tasks()) == before + 1
        await k.units.announcing.announce([f"unit-{number}" for number in range(1000)])

        assert count_of(server, root) == 1000
        assert len(await k.units.fleet()) == 1000
    await eventually(lambda: count_of(server, root) == 0)


def count_of(server: ServerProcess, root: str) -> int:
    keys = [build_path(f"unit-{number}", "keep", presence_id("web-1"), root) for number in range(1000)]
    return cast("int", server.call("EXISTS", *keys))


async def test_nothing_is_left_of_it(settings: Settings) -> None:
    before = asyncio.all_tasks()
    for _ in range(20):
        k: Kizuna
        async with connect(settings) as k, k.unit("detector").serving(echo):
            pass

    assert asyncio.all_tasks() == before
