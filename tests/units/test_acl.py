"""Users that may be one unit and nothing else, on real servers that hold them to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.errors import IllegalName, PermissionDenied, RequestFailed, RequestTimeout
from kizuna.settings import EventsSettings, RootsSettings, Settings, StoreSettings, UnitsSettings
from kizuna.survey.known import Known
from kizuna.survey.unit_acl import rules_for_unit
from kizuna.testing import ClusterSetup, ServerProcess, eventually
from kizuna.testing.users import signed_in
from kizuna.units.unit import Unit

# Who only hears by looking would come too late for the test.
HEARS = UnitsSettings(poll_every_s=600, claim_s=0.5, presence_every_s=0.2)
# Often, so that each test sees some: what is done again and again may be refused as well.
CANARIES = EventsSettings(canary_every_s=0.2)
LOOKS = UnitsSettings(poll_every_s=0.05)
WITHIN_S = 20


@pytest.fixture
def settings(server_url: str, root: str) -> Settings:
    roots = RootsSettings(system=root, coordination=root, units=root)
    return Settings(store=StoreSettings(url=server_url), roots=roots, units=HEARS, events=CANARIES)


@contextmanager
def unit(servers: list[ServerProcess], settings: Settings, name: str, **options: Any) -> Iterator[Settings]:
    """The settings, for a user that may be this unit; that it was refused something is a failure."""
    with signed_in(servers, settings, rules_for_unit(Known(settings), name, **options)) as theirs:
        yield theirs
        assert refused(servers, theirs) == []


def refused(servers: list[ServerProcess], settings: Settings) -> list[tuple[str, str]]:
    """What the servers did not let this user do: command or key, and where."""
    user, entries = settings.store.username, []
    for server in servers:
        for raw in server.call("ACL", "LOG", 128):
            facts = dict(zip(raw[::2], raw[1::2], strict=True))
            if facts[b"username"].decode() == user:
                entries.append((facts[b"reason"].decode(), facts[b"object"].decode()))
    return entries


async def answer(data: bytes) -> bytes:
    if data == b"fail":
        raise ValueError("no such image")
    # Longer than a claim lasts, so that it has to be renewed.
    await asyncio.sleep({b"slow": 0.7, b"stuck": 1}.get(data, 0))
    return data.upper()


async def is_told_as_taken(camera: Unit) -> bool | None:
    with pytest.raises(RequestTimeout) as taken:
        await camera.request("detector", b"stuck", timeout_s=0.3)
    return taken.value.claimed


async def work(camera_settings: Settings, detector_settings: Settings, root: str) -> None:
    """Something of all that units do."""
    async with connect(camera_settings) as one, connect(detector_settings) as other:
        camera, detector = one.unit("camera"), other.unit("detector")
        with pytest.raises(RequestTimeout) as nobody:
            await camera.request("detector", b"x", timeout_s=0.2)
        assert nobody.value.claimed is False

        async with camera.listen(f"{root}/camera/*/*") as messages, detector.serving(answer):
            replies = await asyncio.gather(*(camera.request("detector", b"abc", timeout_s=WITHIN_S) for _ in range(3)))
            assert replies == [b"ABC"] * 3
            assert await camera.request("detector", b"slow", timeout_s=WITHIN_S) == b"SLOW"
            with pytest.raises(RequestFailed, match="no such image"):
                await camera.request("detector", b"fail", timeout_s=WITHIN_S)
            await eventually(lambda: is_told_as_taken(camera), within_s=WITHIN_S)
            assert await messages.next(timeout_s=WITHIN_S) is not None
            assert [await detector.keep.get("nothing"), await detector.keep.touch("nothing")] == [None, False]

        await camera.keep.set("zoom", b"1")
        await camera.keep.replace("zoom", b"2", expected=b"1")
        assert await camera.keep.update("zoom", lambda raw: raw + b"0") == b"20"
        assert await camera.keep.touch("zoom")
        assert [id_ async for id_ in camera.keep.ids()] == ["zoom"]


async def test_a_unit_can_do_all_of_its_work_and_the_server_has_nothing_to_refuse(
    server: ServerProcess, settings: Settings, root: str
) -> None:
    with (
        unit([server], settings, "camera", calls=["detector"], serves=False) as camera,
        unit([server], settings, "detector", calls=[]) as detector,
    ):
        await work(camera, detector, root)


async def test_units_that_may_call_everybody_can_work_on_a_cluster(cluster: ClusterSetup, root: str) -> None:
    roots = RootsSettings(system=root, coordination=root, units=root)
    settings = Settings(store=StoreSettings(url=cluster.url), roots=roots, units=HEARS, events=CANARIES)
    with unit(cluster.servers, settings, "camera") as camera, unit(cluster.servers, settings, "detector") as detector:
        await work(camera, detector, root)
    async with connect(settings) as k:
        await k.store.call_each_primary("FLUSHALL")


async def test_the_line_means_the_same_to_redis(redis_binary: str) -> None:
    with ServerProcess(binary=redis_binary, config={"notify-keyspace-events": "AKE"}) as server:
        settings = Settings(store=StoreSettings(url=server.url), units=HEARS, events=CANARIES)
        with (
            unit([server], settings, "camera", calls=["detector"], serves=False) as camera,
            unit([server], settings, "detector", calls=[]) as detector,
        ):
            await work(camera, detector, "muf")
        with signed_in([server], settings, rules_for_unit(Known(settings), "camera", calls=["detector"])) as theirs:
            async with connect(theirs) as k:
                assert [what for what, ask in FORBIDDEN.items() if not await is_refused(ask(k, "muf"))] == []


FORBIDDEN: dict[str, Callable[[Kizuna, str], Awaitable[object]]] = {
    "a request in another's name": lambda k, root: k.store.call("SET", f"{root}/victim/req/detector.1", "x", "PX", 9),
    "a request to whom it does not call": lambda k, root: k.unit("camera").request("door", b"open"),
    "another's request": lambda k, root: k.store.call("GET", f"{root}/victim/req/detector.1"),
    "another's reply": lambda k, root: k.store.call("GET", f"{root}/victim/res/detector.1"),
    "another's error": lambda k, root: k.store.call("MGET", f"{root}/victim/err/detector.1"),
    "its own reply, once it is sent": lambda k, root: k.store.call("GET", f"{root}/victim/res/camera.1"),
    "a request to it, for writing": lambda k, root: k.store.call("SET", f"{root}/victim/req/camera.1", "x", "PX", 9),
    "an answer to another's request": lambda k, root: k.store.call("SET", f"{root}/victim/res/door.1", "x", "PX", 9),
    "another's claim": lambda k, root: k.store.call("SET", f"{root}/detector/keep/claim.camera.1", "x", "PX", 9),
    "claims on others' requests": lambda k, root: k.store.call("GET", f"{root}/detector/keep/claim.victim.1"),
    "another's state": lambda k, root: k.unit("camera").keep_of("sensor").get("temp"),
    "another's state, for writing": lambda k, root: k.unit("camera").keep_of("sensor").set("temp", b"0"),
    "hearing what others ask": lambda k, root: heard(k, f"{root}/*/req/*"),
    "hearing what others are told": lambda k, root: heard(k, f"{root}/victim/res/*"),
    "removing": lambda k, root: k.store.call("DEL", f"{root}/camera/keep/zoom"),
    "telling a reply in another's name": lambda k, root: k.store.call("PUBLISH", f"{root}/victim/res/door.1", "x"),
    "telling of a change of another's key": lambda k, root: k.store.call(
        "PUBLISH", f"__keyspace@0__:{root}/victim/res/door.1", "set"
    ),
    "being told what others are": lambda k, root: told(k, f"{root}/*/res/*"),
    "keys of coordination": lambda k, root: k.store.call("GET", f"{root}:lock:nightly"),
    "all keys at once": lambda k, _: k.store.call("KEYS", "*"),
    "removing everything": lambda k, _: k.store.call("FLUSHALL"),
    "settings of the server": lambda k, _: k.store.call("CONFIG", "SET", "maxmemory", 0),
    "passwords in the settings of the server": lambda k, _: k.store.call("CONFIG", "GET", "requirepass"),
    "users": lambda k, _: k.store.call("ACL", "LIST"),
    "who else is connected": lambda k, _: k.store.call("CLIENT", "LIST"),
    "a script on another's key": lambda k, root: k.store.call(
        "EVAL", "return redis.call('GET', ARGV[1])", 0, f"{root}/victim/res/detector.1"
    ),
}


async def heard(k: Kizuna, pattern: str) -> None:
    async with k.store.events.watch(pattern):
        pass


async def told(k: Kizuna, channel: str) -> None:
    async with k.store.events.listen(channel):
        pass


async def is_refused(asked: Awaitable[object]) -> bool:
    try:
        await asked
    except PermissionDenied:
        return True
    return False


async def test_what_is_not_its_work_is_refused(server: ServerProcess, settings: Settings, root: str) -> None:
    with signed_in([server], settings, rules_for_unit(Known(settings), "camera", calls=["detector"])) as theirs:
        async with connect(theirs) as k:
            assert [what for what, ask in FORBIDDEN.items() if not await is_refused(ask(k, root))] == []


async def test_state_is_watched_by_its_unit_and_by_those_who_may_read_it(
    server: ServerProcess, settings: Settings
) -> None:
    rules = [rules_for_unit(Known(settings), "sensor"), rules_for_unit(Known(settings), "display", reads=["Sensor"])]
    with signed_in([server], settings, rules[0]) as sensor, signed_in([server], settings, rules[1]) as display:
        async with connect(sensor) as k, connect(display) as other:
            kept, read = k.unit("sensor").keep, other.unit("display").keep_of("sensor")
            async with kept.watch() as own, read.watch() as changes:
                await kept.set("temp", b"21.5")
                for each in (own, changes):
                    change = await each.next(timeout_s=WITHIN_S)
                    assert change is not None
                    assert (change.id, change.value, each.polling) == ("temp", b"21.5", None)
            assert await read.get("temp") == b"21.5"
            with pytest.raises(PermissionDenied):
                await read.set("temp", b"0")
        # What the server announces, of keys that end, only its settings could tell: that is asked once.
        assert refused([server], sensor) == [("command", "config|get")]
        assert ("command", "config|get") in refused([server], display)


async def test_a_unit_that_may_not_subscribe_still_works_by_looking(
    server: ServerProcess, settings: Settings, root: str
) -> None:
    settings = msgspec.structs.replace(settings, units=LOOKS)
    known = Known(settings)
    deaf = [
        [rule for rule in rules_for_unit(known, name) if not rule.startswith("&")] for name in ("camera", "detector")
    ]
    with signed_in([server], settings, deaf[0]) as one, signed_in([server], settings, deaf[1]) as other:
        async with connect(one) as k, connect(other) as k2:
            camera, detector = k.unit("camera"), k2.unit("detector")
            async with detector.serving(answer):
                assert await camera.request("detector", b"abc", timeout_s=WITHIN_S) == b"ABC"
                with pytest.raises(RequestFailed, match="no such image"):
                    await camera.request("detector", b"fail", timeout_s=WITHIN_S)
            async with camera.keep.watch() as changes:
                await camera.keep.set("zoom", b"1")
                assert (await changes.next(timeout_s=WITHIN_S)) is not None
                assert isinstance(changes.polling, PermissionDenied)
            async with camera.listen(f"{root}/camera/keep/zoom*") as messages:
                await camera.keep.set("zoom", b"2")
                message = await messages.next(timeout_s=WITHIN_S)
                assert message is not None
                assert message.raw == b"2"
        assert ("channel", f"__keyspace@0__:{root}/*/req/detector.*") in await eventually(
            lambda: refused([server], other)
        )


async def test_a_narrower_pattern_than_was_granted_is_looked_at(server: ServerProcess, settings: Settings) -> None:
    settings = msgspec.structs.replace(settings, units=LOOKS)
    with signed_in([server], settings, rules_for_unit(Known(settings), "camera")) as theirs:
        async with connect(theirs) as k, k.unit("camera").keep.watch("zoom*") as changes:
            await k.unit("camera").keep.set("zoom", b"1")
            change = await changes.next(timeout_s=WITHIN_S)

            assert change is not None
            assert isinstance(changes.polling, PermissionDenied)


def test_the_rules_of_a_pure_server() -> None:
    rules = rules_for_unit(Known(Settings()), "Detector", calls=[], database=3)

    assert [rule for rule in rules if "~" in rule] == [
        "~muf/detector/res/*",
        "~muf/detector/err/*",
        "~muf/detector/keep/*",
        "%R~muf/*/req/detector.*",
        "%W~muf/*/res/detector.*",
        "%W~muf/*/err/detector.*",
        "%W~kizuna:canary:{*}:*",
    ]
    assert [rule for rule in rules if "&" in rule] == [
        "&muf/detector/res/*",
        "&muf/detector/err/*",
        "&muf/*/res/detector.*",
        "&muf/*/err/detector.*",
        "&__keyspace@3__:muf/detector/*/*",
        "&__keyspace@3__:muf/detector/req/*",
        "&__keyspace@3__:muf/detector/res/*",
        "&__keyspace@3__:muf/detector/err/*",
        "&__keyspace@3__:muf/detector/keep/*",
        "&__keyspace@3__:muf/*/req/detector.*",
        "&__keyspace@3__:kizuna:canary:{*}:*",
    ]


def test_the_rules_of_who_only_calls() -> None:
    rules = rules_for_unit(Known(Settings()), "camera", calls=["detector", "Archive"], serves=False, reads=["sensor"])

    assert [rule for rule in rules if "~" in rule] == [
        "~muf/camera/req/archive.*",
        "%R~muf/archive/keep/claim.camera.*",
        "~muf/camera/req/detector.*",
        "%R~muf/detector/keep/claim.camera.*",
        "~muf/camera/res/*",
        "~muf/camera/err/*",
        "~muf/camera/keep/*",
        "%R~muf/sensor/keep/*",
        "%W~kizuna:canary:{*}:*",
    ]
    assert "&__keyspace@0__:muf/sensor/keep/*" in rules
    assert {"&__keyspace@0__:muf/*/req/camera.*", "&muf/*/res/camera.*", "+publish"}.isdisjoint(rules)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a*", "detector.fast"])
def test_what_is_no_name_gets_no_rules(name: str) -> None:
    for options in ({"unit": name}, {"unit": "camera", "calls": [name]}):
        with pytest.raises(IllegalName):
            rules_for_unit(Known(Settings()), **options)
