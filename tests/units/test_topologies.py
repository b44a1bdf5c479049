"""The same units on a single server, behind Sentinel, on a cluster, and on Redis; and while those become others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from kizuna.app import Kizuna, connect
from kizuna.coordination.handlers import Failed
from kizuna.errors import RequestFailed, RequestTimeout
from kizuna.settings import EventsSettings, RootsSettings, Settings, StoreSettings, UnitsSettings
from kizuna.testing import ClusterSetup, SentinelSetup, ServerProcess, eventually
from kizuna.units.executions import Request
from kizuna.units.unit import Unit

MANY = 60
LONG_S = 40.0


def on(url: str, root: str) -> Settings:
    return Settings(
        store=StoreSettings(url=url, connect_timeout_s=1, reconnect_longest_s=0.2),
        roots=RootsSettings(system=root, coordination=root, units=root),
        events=EventsSettings(canary_every_s=0.2, canary_timeout_s=1),
        units=UnitsSettings(claim_s=2),
    )


@pytest.fixture(params=["single", "sentinel", "cluster", "redis"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "redis":
            redis = ServerProcess(binary=request.getfixturevalue("redis_binary"))
            yield stack.enter_context(redis).url
        else:
            yield request.getfixturevalue({"single": "server"}.get(request.param, request.param)).url


@pytest.fixture
async def k(url: str, root: str, nothing_is_reported: None) -> AsyncIterator[Kizuna]:
    async with connect(on(url, root)) as k:
        yield k


async def upper(data: bytes) -> bytes:
    if data == b"fail":
        raise Failed("as you like")
    return data.upper()


async def asked(camera: Unit, number: int = MANY, *, timeout_s: float = 30) -> None:
    many = [camera.request("detector", b"%d a" % n, timeout_s=timeout_s) for n in range(number)]
    assert await asyncio.gather(*many) == [b"%d A" % n for n in range(number)]


class Held:
    """A handler that answers when it is told to."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.runs: list[str] = []

    async def handle(self, data: bytes, request: Request) -> bytes:
        self.runs.append(request.id)
        await self.told.wait()
        return data.upper()


# -- everywhere ---------------------------------------------------------------------------------------------


async def test_requests_are_answered(k: Kizuna) -> None:
    camera = k.unit("camera")
    async with k.unit("detector").serving(upper):
        await asked(camera)
        with pytest.raises(RequestFailed, match="as you like"):
            await camera.request("detector", b"fail", timeout_s=30)
    with pytest.raises(RequestTimeout) as timeout:
        await camera.request("detector", b"", timeout_s=0.1)
    assert timeout.value.claimed is False


async def test_requests_that_were_there_before_are_found(k: Kizuna) -> None:
    asking = asyncio.create_task(asked(k.unit("camera")))
    await eventually(lambda: k.units.counts_of("camera").requests == MANY)
    async with k.unit("detector").serving(upper):
        await asking


async def test_what_is_written_anywhere_is_heard_once(k: Kizuna, root: str) -> None:
    camera = k.unit("camera")
    async with k.unit("listener").listen(f"{root}/camera/keep/n-*") as messages:
        await asyncio.gather(*(camera.send("keep", f"n-{n}", b"%d" % n) for n in range(MANY)))
        heard = [await messages.next(timeout_s=30) for _ in range(MANY)]
        await camera.send("keep", "n-last", b"last")
        last = await messages.next(timeout_s=30)

    assert sorted(int(message.raw) for message in heard if message) == list(range(MANY))
    assert last is not None
    assert last.raw == b"last"


async def test_of_two_processes_one_serves_each_request(k: Kizuna, url: str, root: str) -> None:
    runs: Counter[bytes] = Counter()

    async def note(data: bytes) -> bytes:
        runs[data] += 1
        await asyncio.sleep(0.05)
        return data.upper()

    async with (
        connect(on(url, root)) as other,
        k.unit("detector").serving(note),
        other.unit("detector").serving(note),
    ):
        await asked(k.unit("camera"))

    assert set(runs.values()) == {1}
    assert len(runs) == MANY


async def test_the_request_of_a_server_that_died_is_served_by_another(k: Kizuna, root: str) -> None:
    await k.store.call("SET", f"{root}/detector/keep/claim.camera.detector.1", "of the dead", "PX", 300)
    async with k.unit("detector").serving(upper):
        assert await k.unit("camera").request("detector", b"hello", id="1", timeout_s=30) == b"HELLO"
        with pytest.raises(RequestTimeout) as timeout:
            await asking_the_dead(k, root)
        assert timeout.value.claimed is True


async def asking_the_dead(k: Kizuna, root: str) -> None:
    await k.store.call("SET", f"{root}/detector/keep/claim.camera.detector.2", "of the dead", "PX", 60_000)
    await k.unit("camera").request("detector", b"hello", id="2", timeout_s=0.2)


async def test_a_unit_is_seen_by_all(k: Kizuna) -> None:
    async with k.unit("detector").serving(upper):
        await eventually(lambda: is_seen(k, "detector"))


async def is_seen(k: Kizuna, name: str) -> bool:
    return any(unit.name == name and unit.serves for unit in await k.units.fleet())


# -- Sentinel -----------------------------------------------------------------------------------------------


async def test_requests_in_flight_and_new_ones_are_answered_after_a_failover(
    fresh_sentinel: SentinelSetup, root: str
) -> None:
    held = Held()
    async with connect(on(fresh_sentinel.url, root)) as k, k.unit("detector").serving(held.handle):
        camera = k.unit("camera")
        before = [asyncio.create_task(camera.request("detector", b"a", timeout_s=LONG_S)) for _ in range(10)]
        await eventually(lambda: len(held.runs) == 10)

        former = fresh_sentinel.kill_primary()
        between = [asyncio.create_task(camera.request("detector", b"b", timeout_s=LONG_S)) for _ in range(10)]
        await asyncio.to_thread(fresh_sentinel.wait_for_failover, former)
        held.told.set()

        assert await asyncio.gather(*before) == [b"A"] * 10
        assert await asyncio.gather(*between) == [b"B"] * 10
        await asked(camera, timeout_s=LONG_S)


# -- Cluster ------------------------------------------------------------------------------------------------


async def test_keys_of_one_request_may_be_on_different_nodes(cluster: ClusterSetup, root: str) -> None:
    """So that one answer needs the announcements of all of them."""
    async with connect(on(cluster.url, root)) as k, k.unit("detector").serving(upper):
        camera = k.unit("camera")
        places = set()
        for n in range(20):
            paths = [f"{root}/camera/{status}/detector.{n}" for status in ("req", "res")]
            places.add(tuple(cluster.owner_of(cluster.slot_of(path)).port for path in paths))
            assert await camera.request("detector", b"a", id=f"{n}", timeout_s=30) == b"A"

    assert any(request != response for request, response in places)
    assert {port for pair in places for port in pair} == {server.port for server in cluster.servers}


async def test_a_slot_that_moves_while_a_request_is_in_flight_takes_its_reply_along(
    cluster: ClusterSetup, root: str
) -> None:
    held = Held()
    async with connect(on(cluster.url, root)) as k, k.unit("detector").serving(held.handle):
        camera = k.unit("camera")
        asking = [asyncio.create_task(camera.request("detector", b"a", id=f"{n}", timeout_s=LONG_S)) for n in range(4)]
        await eventually(lambda: len(held.runs) == 4)
        paths = [f"{root}/camera/res/detector.0", f"{root}/camera/err/detector.1", f"{root}/camera/req/detector.2"]
        paths += [f"{root}/detector/keep/claim.camera.detector.3"]
        slots = {cluster.slot_of(path) for path in paths}
        owners = {slot: cluster.owner_of(slot) for slot in slots}
        try:
            for slot, owner in owners.items():
                to = next(server for server in cluster.servers if server is not owner)
                await asyncio.to_thread(cluster.move_slot, slot, to)
            held.told.set()
            assert await asyncio.gather(*asking) == [b"A"] * 4
            assert sorted(held.runs) == [f"detector.{n}" for n in range(4)]
            assert await camera.request("detector", b"b", id="0-again", timeout_s=30) == b"B"
        finally:
            for slot, owner in owners.items():
                await asyncio.to_thread(cluster.move_slot, slot, owner)


async def test_requests_in_flight_and_new_ones_are_answered_after_a_failover_in_a_cluster(root: str) -> None:
    held = Held()
    with ClusterSetup(replicas_each=1, node_timeout_ms=1000) as cluster:
        async with connect(on(cluster.url, root)) as k, k.unit("detector").serving(held.handle):
            camera = k.unit("camera")
            before = [asyncio.create_task(camera.request("detector", b"a", timeout_s=LONG_S)) for _ in range(20)]
            await eventually(lambda: len(held.runs) == 20)

            cluster.servers[0].kill()
            between = [asyncio.create_task(camera.request("detector", b"b", timeout_s=LONG_S)) for _ in range(20)]
            held.told.set()

            assert await asyncio.gather(*before) == [b"A"] * 20
            assert await asyncio.gather(*between) == [b"B"] * 20
            await asked(camera, timeout_s=LONG_S)


async def test_connections_that_are_cut_on_some_nodes_cost_no_answer(cluster: ClusterSetup, root: str) -> None:
    held = Held()
    async with connect(on(cluster.url, root)) as k, k.unit("detector").serving(held.handle):
        asking = [asyncio.create_task(k.unit("camera").request("detector", b"a", timeout_s=LONG_S)) for _ in range(30)]
        await eventually(lambda: len(held.runs) == 30)
        for server in cluster.servers[:2]:
            server.call("CLIENT", "KILL", "TYPE", "pubsub")
        held.told.set()

        assert await asyncio.gather(*asking) == [b"A"] * 30
