"""Where the server announces no changes, and we may not switch that on, units look instead: slower, and as right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from kizuna.app import Kizuna, connect
from kizuna.coordination.handlers import Failed
from kizuna.errors import RequestFailed, RequestTimeout
from kizuna.settings import EventsSettings, RootsSettings, Secret, Settings, StoreSettings, UnitsSettings
from kizuna.store.health.examination import examine
from kizuna.testing import ClusterSetup, ServerProcess, eventually
from kizuna.units import hearing
from kizuna.units.unit import Unit

FLAGS = "notify-keyspace-events"
# A tenth of what it takes by default.
UNITS = UnitsSettings(poll_every_s=0.025, presence_every_s=0.2)
NO_CONFIG = "on >secret ~* &* +@all -config"
NO_CHANNELS = "on >secret ~* resetchannels +@all"


@pytest.fixture
def silent() -> Iterator[ServerProcess]:
    """A server that announces nothing, with users that cannot change it."""
    users = {"app": NO_CONFIG, "deaf": NO_CHANNELS}
    with ServerProcess(config={FLAGS: ""}, users=users) as server:
        yield server


def at(server: ServerProcess | ClusterSetup, root: str, user: str = "app") -> Settings:
    return Settings(
        store=StoreSettings(url=server.url, username=user, password=Secret("secret")),
        roots=RootsSettings(system=root, coordination=root, units=root),
        events=EventsSettings(canary_every_s=0.1, canary_timeout_s=5),
        units=UNITS,
    )


@pytest.fixture
async def k(silent: ServerProcess, root: str, nothing_is_reported: None) -> AsyncIterator[Kizuna]:
    async with connect(at(silent, root)) as k:
        yield k


async def upper(data: bytes) -> bytes:
    if data == b"fail":
        raise Failed("as you like")
    return data.upper()


@pytest.fixture
def camera(k: Kizuna) -> Unit:
    return k.unit("camera")


async def asked(camera: Unit, number: int = 1) -> None:
    many = [camera.request("detector", b"%d a" % n, timeout_s=30) for n in range(number)]
    assert await asyncio.gather(*many) == [b"%d A" % n for n in range(number)]


async def polls(k: Kizuna) -> set[str]:
    """The units that say so."""
    return {unit.name for unit in await k.units.fleet() if unit.polling}


# -- by looking ---------------------------------------------------------------------------------------------


async def test_requests_are_served_and_answered(k: Kizuna, camera: Unit, silent: ServerProcess) -> None:
    async with k.unit("detector").serving(upper):
        await asked(camera, 100)
        with pytest.raises(RequestFailed, match="as you like"):
            await camera.request("detector", b"fail", timeout_s=30)

    assert silent.call("CONFIG", "GET", FLAGS)[1] == b""
    assert k.units.counts_of("detector").resyncs > 0


async def test_who_may_not_subscribe_looks_as_well(silent: ServerProcess, root: str) -> None:
    silent.call("CONFIG", "SET", FLAGS, "AKE")
    async with connect(at(silent, root, "deaf")) as k, k.unit("detector").serving(upper):
        await asked(k.unit("camera"), 10)
        assert "detector" in await eventually(lambda: polls(k))


async def test_a_timeout_is_told_in_time_and_says_whether_anybody_took_it(k: Kizuna, camera: Unit) -> None:
    with pytest.raises(RequestTimeout) as timeout:
        await camera.request("detector", b"", timeout_s=0.1)
    assert timeout.value.claimed is False

    told = asyncio.Event()

    async def wait(_: bytes) -> None:
        await told.wait()

    async with k.unit("detector").serving(wait):
        with pytest.raises(RequestTimeout) as timeout:
            await camera.request("detector", b"", timeout_s=3)
        assert timeout.value.claimed is True
        told.set()


async def test_what_was_asked_before_anybody_served_is_answered(k: Kizuna, camera: Unit) -> None:
    asking = asyncio.create_task(asked(camera, 3))
    await eventually(lambda: k.units.counts_of("camera").requests == 3)
    async with k.unit("detector").serving(upper):
        await asking


async def test_of_two_processes_one_serves_each_request(
    k: Kizuna, camera: Unit, silent: ServerProcess, root: str
) -> None:
    runs = []

    async def note(data: bytes) -> bytes:
        runs.append(data)
        await asyncio.sleep(0.1)
        return data.upper()

    async with (
        connect(at(silent, root)) as other,
        k.unit("detector").serving(note),
        other.unit("detector").serving(note),
    ):
        await asked(camera, 50)

    assert sorted(runs) == sorted(b"%d a" % n for n in range(50))


async def test_the_request_of_a_server_that_died_is_served_when_its_claim_has_ended(
    k: Kizuna, camera: Unit, silent: ServerProcess, root: str
) -> None:
    silent.call("SET", f"{root}/detector/keep/claim.unit_a.detector.1", "of the dead", "PX", 300)
    silent.call("SET", f"{root}/unit_a/req/detector.1", "hello", "EX", 10)
    async with k.unit("detector").serving(upper):
        assert await eventually(lambda: silent.call("GET", f"{root}/unit_a/res/detector.1")) == b"HELLO"
    assert silent.call("GET", f"{root}/detector/keep/claim.unit_a.detector.1") != b"of the dead"


async def test_who_listens_is_handed_what_is_written_once(
    k: Kizuna, camera: Unit, silent: ServerProcess, root: str
) -> None:
    async with k.unit("listener").listen(f"{root}/*/req/*") as messages:
        for number in range(3):
            silent.call("SET", f"{root}/unit_a/req/{number}", f"{number}", "EX", 10)
        heard = [await messages.next(timeout_s=30) for _ in range(3)]
        silent.call("SET", f"{root}/unit_a/req/0", "another", "EX", 10)
        last = await messages.next(timeout_s=30)

    assert sorted((message.id, message.raw, message.found) for message in heard if message) == [
        ("0", b"0", True),
        ("1", b"1", True),
        ("2", b"2", True),
    ]
    assert last is not None
    assert last.raw == b"another"


async def test_what_one_unit_was_told_about_the_server_holds_for_all(k: Kizuna, silent: ServerProcess) -> None:
    async with AsyncExitStack() as stack:
        units = [k.unit(f"unit-{number}") for number in range(50)]
        for unit in units:
            await stack.enter_async_context(unit.serving(upper))
        assert "calls=1," in silent.info("commandstats")["cmdstat_psubscribe"]

        for unit in units[:3]:
            assert await k.unit("camera").request(unit.name, b"a", timeout_s=30) == b"A"


async def test_on_a_cluster_one_primary_that_is_silent_is_enough_to_look(root: str) -> None:
    with ClusterSetup(primaries=2) as cluster:
        for server in cluster.servers:
            server.call("ACL", "SETUSER", "app", *NO_CONFIG.split())
        async with connect(at(cluster, root)) as k, k.unit("detector").serving(upper):
            camera, events = k.unit("camera"), k.store.events
            await asked(camera, 20)
            assert await polls_of(k, set())
            cluster.servers[1].call("CONFIG", "SET", FLAGS, "")
            await asked(camera, 20)
            await eventually(lambda: polls_of(k, {"camera", "detector"}))

            # Also when the other one is heard anew.
            looked_again = events.counts.look_agains
            cluster.servers[0].call("CLIENT", "KILL", "TYPE", "pubsub")
            await eventually(lambda: events.counts.look_agains > looked_again)
            assert await polls_of(k, {"camera", "detector"})
            await asked(camera, 20)


# -- from one to the other ----------------------------------------------------------------------------------


async def test_when_changes_are_announced_later_they_are_heard(
    k: Kizuna, camera: Unit, silent: ServerProcess, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "_TRY_AGAIN_S", 0.1)
    async with k.unit("detector").serving(upper), k.unit("listener").listen(f"{root}/*/res/*") as messages:
        await asked(camera)
        await eventually(lambda: polls_of(k, {"camera", "detector", "listener"}))
        silent.call("CONFIG", "SET", FLAGS, "K$")

        async def is_heard() -> bool:
            await asked(camera)
            message = await messages.next(timeout_s=30)
            return message is not None and not message.found

        await eventually(is_heard, within_s=30)
        await eventually(lambda: polls_of(k, set()))
        resyncs = k.units.counts_of("detector").resyncs
        await asked(camera, 20)
        # Nobody looks any more, apart from one who was about to.
        assert k.units.counts_of("detector").resyncs <= resyncs + 1


async def test_when_it_is_switched_off_in_the_middle_units_look_until_it_is_on_again(
    k: Kizuna, camera: Unit, silent: ServerProcess, root: str
) -> None:
    silent.call("CONFIG", "SET", FLAGS, "K$")
    async with k.unit("detector").serving(upper), k.unit("listener").listen(f"{root}/*/req/*") as messages:
        await asked(camera)
        heard = await messages.next(timeout_s=30)
        assert heard is not None
        assert not heard.found
        assert await polls(k) == set()

        silent.call("CONFIG", "SET", FLAGS, "")
        # What was not announced before that was noticed is found.
        await asked(camera, 10)
        await eventually(lambda: polls_of(k, {"camera", "detector", "listener"}))
        await asked(camera, 10)
        found = [await messages.next(timeout_s=30) for _ in range(20)]
        assert all(message is not None and message.found for message in found)

        silent.call("CONFIG", "SET", FLAGS, "K$")
        await eventually(lambda: polls_of(k, set()))
        await asked(camera, 10)


async def polls_of(k: Kizuna, expected: set[str]) -> bool:
    """Whether just these say so; and so do the measures."""
    told = {measure.labels["unit"] for measure in k.units.measures() if is_polling(measure.name) and measure.value}
    return await polls(k) == expected == told


def is_polling(name: str) -> bool:
    return name == "kizuna_unit_polling"


# -- doctor -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["app", "deaf"])
async def test_doctor_says_that_units_poll_and_what_to_do_about_it(silent: ServerProcess, root: str, user: str) -> None:
    silent.call("ACL", "SETUSER", "deaf", "-config|set")
    (check,) = [check for check in await examine(at(silent, root, user)) if check.check == "notifications"]

    assert check.verdict == "warn"
    assert "units look every 0.025 s instead of being told" in check.found
    assert "CONFIG SET notify-keyspace-events K$gx" in check.mend


async def test_doctor_is_content_where_changes_are_announced_although_it_may_not_see_the_flags(
    silent: ServerProcess, root: str
) -> None:
    silent.call("CONFIG", "SET", FLAGS, "AKE")
    (check,) = [check for check in await examine(at(silent, root)) if check.check == "notifications"]

    assert check.verdict == "pass"
    assert check.mend == ""
