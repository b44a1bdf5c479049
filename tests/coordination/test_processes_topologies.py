"""Processes and issues behind sentinels, and on a cluster with shards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from kizuna.app import Kizuna
from kizuna.coordination.issues import Issues
from kizuna.coordination.keys import ISSUE_STATUS
from kizuna.coordination.processes import Processes
from kizuna.errors import IssueTaken, ProcessUnknown
from kizuna.service import running
from kizuna.settings import CoordinationSettings, ProcessesSettings, RootsSettings, Settings, StoreSettings
from kizuna.store.keys import Roots, key_slot
from kizuna.testing import ClusterSetup, SentinelSetup, eventually
from kizuna.testing.leaks import assert_keys_end_as_declared

EVERY_S = 0.2
SHARDS = 6
SOON_S = 20.0


def at(url: str, root: str, shards: int = 1, timeout_s: float = 10.0) -> Settings:
    return Settings(
        store=StoreSettings(url=url, timeout_s=timeout_s),
        roots=RootsSettings(system=root, coordination=root),
        coordination=CoordinationSettings(shards=shards),
        processes=ProcessesSettings(heartbeat_every_s=EVERY_S),
    )


@pytest.fixture
def on_cluster(cluster: ClusterSetup, root: str) -> Iterator[Settings]:
    yield at(cluster.url, root, SHARDS)
    for server in cluster.servers:
        assert_keys_end_as_declared(server, root)


class Fleet:
    """Makes processes, each with connections and a background of its own."""

    def __init__(self) -> None:
        self.opened: list[Kizuna] = []

    async def kizuna(self, settings: Settings) -> Kizuna:
        k = Kizuna(settings)
        self.opened.append(k)
        await k.store.open()
        return k

    async def processes(self, settings: Settings, process: str) -> Processes:
        k = await self.kizuna(settings)
        return Processes(k.store, k.background, process)

    async def one_that_dies(self, settings: Settings, process: str) -> None:
        """Its connections are gone, and it never said goodbye."""
        k = await self.kizuna(settings)
        await Processes(k.store, k.background, process).register(kind="silent")
        await k.aclose()


@pytest_asyncio.fixture
async def fleet() -> AsyncIterator[Fleet]:
    fleet = Fleet()
    yield fleet
    for k in fleet.opened:
        await k.aclose()


async def test_on_a_cluster_the_dead_of_all_shards_are_found_and_what_they_had_is_given_back(
    on_cluster: Settings, fleet: Fleet
) -> None:
    janitors = [await fleet.processes(on_cluster, f"janitor-{number}") for number in range(2)]
    issues = Issues((await fleet.kizuna(on_cluster)).store, "onlooker")
    dying = [f"dying-{number}" for number in range(12)]
    buried: list[str] = []

    async def note(process: str) -> None:
        buried.append(process)

    for janitor in janitors:
        janitor.on_death(issues.give_back)
        janitor.on_death(note)
    async with running(*(janitor.membership() for janitor in janitors)):
        for number, process in enumerate(dying):
            await fleet.one_that_dies(on_cluster, process)
            await Issues(issues._store, process).checkout(number)
        await eventually(lambda: len(buried) >= len(dying), within_s=SOON_S)
        assert sorted(buried) == sorted(dying)
        assert [zombie.id for zombie in await janitors[0].zombies()] == sorted(dying)
        assert [one.id for one in await janitors[0].active()] == ["janitor-0", "janitor-1"]
        assert await issues.processing() == []

        await asyncio.gather(*(janitors[1].bury(process) for process in dying))
        assert await janitors[0].zombies() == []


async def test_on_a_cluster_the_server_that_holds_the_process_is_asked_about_its_connection(
    on_cluster: Settings, fleet: Fleet
) -> None:
    """Held up, but connected: on each of the primaries, so that none is asked at the wrong one."""
    janitor = await fleet.processes(on_cluster, "janitor")
    busy = [await fleet.processes(on_cluster, f"busy-{number}") for number in range(6)]
    for one in busy:
        await one.register(kind="busy")
        # No more heartbeats, while the connection stands.
        await eventually(lambda: beats_of(one))  # noqa: B023 - awaited here
        one._members[one.process]._beating.stop()  # type: ignore[union-attr]
    async with running(janitor.membership()):
        await eventually(lambda: all_silent(janitor, busy), within_s=SOON_S)
        for _ in range(10):
            assert await janitor.look() == []
        assert await janitor.zombies() == []

        await asyncio.gather(*(one._background.aclose() for one in busy))
        await eventually(lambda: all_dead(janitor, busy), within_s=SOON_S)


async def beats_of(processes: Processes) -> bool:
    """More than the registration itself: the connection of the background is known."""
    return ((await processes.info(processes.process)).beats or 0) > 1


async def all_silent(processes: Processes, others: list[Processes]) -> bool:
    return {(await processes.info(one.process)).state for one in others} == {"silent"}


async def all_dead(processes: Processes, others: list[Processes]) -> bool:
    return {(await processes.info(one.process)).state for one in others} == {"zombie"}


async def test_on_a_cluster_issues_are_spread_and_their_lists_are_whole(on_cluster: Settings, fleet: Fleet) -> None:
    store = (await fleet.kizuna(on_cluster)).store
    one, other = Issues(store, "one"), Issues(store, "other")
    numbers = range(60)
    outcomes = await asyncio.gather(
        *(issues.checkout(number) for number in numbers for issues in (one, other)), return_exceptions=True
    )
    assert sum(isinstance(outcome, IssueTaken) for outcome in outcomes) == len(numbers)
    roots = Roots(on_cluster.roots.coordination, SHARDS)
    slots = {key_slot(ISSUE_STATUS.build(roots.of(f"issue:{number}"), issue=str(number))) for number in numbers}
    assert len(slots) == SHARDS

    await asyncio.gather(*(one.complete(number, force=True) for number in numbers[:30]))
    assert await one.processing() == [str(number) for number in numbers[30:]]
    assert await one.completed_today() == [str(number) for number in numbers[:30]]
    assert len([issue async for issue in one.all()]) == len(numbers)
    assert [fault async for fault in one.verify()] == []
    given_back = [await one.give_back("one"), await one.give_back("other")]
    assert sum(given_back) == 30


async def test_on_a_cluster_a_lock_of_somebody_else_is_respected_and_changes_are_told(
    on_cluster: Settings, fleet: Fleet
) -> None:
    k, other = await fleet.kizuna(on_cluster), await fleet.kizuna(on_cluster)
    issues = Issues(k.store, k.process)
    channel = f"{on_cluster.roots.coordination}:channel:events:issue:status"
    async with k.store.events.listen(channel) as feed:
        for number in range(8):
            async with other.locks.hold(f"issue:{number}"):
                with pytest.raises(IssueTaken, match="locked"):
                    await issues.checkout(number)
            async with k.locks.hold(f"issue:{number}"):
                await issues.checkout(number)
        told = [await feed.next(timeout_s=SOON_S) for _ in range(8)]
    # Each is told by the server that has the issue: there is no order among them.
    assert {json.loads(message.payload)["issue"] for message in told} == set("01234567")  # type: ignore[union-attr]


async def test_behind_sentinels_the_fleet_survives_a_failover_and_still_finds_its_dead(
    fresh_sentinel: SentinelSetup, fleet: Fleet, root: str
) -> None:
    settings = at(fresh_sentinel.url, root, timeout_s=2.0)
    one, other = await fleet.processes(settings, "one"), await fleet.processes(settings, "other")
    issues = Issues(one._store, "one")
    for processes in (one, other):
        processes.on_death(issues.give_back)
    async with running(one.membership(), other.membership()):
        await issues.checkout(1)
        await eventually(lambda: replicated(fresh_sentinel, root), within_s=SOON_S)
        former = await asyncio.to_thread(fresh_sentinel.kill_primary)
        await asyncio.to_thread(fresh_sentinel.wait_for_failover, former)

        beats = await eventually(lambda: heard(one, "other", 0), within_s=SOON_S)
        await eventually(lambda: heard(one, "other", beats + 4), within_s=SOON_S)
        assert await one.zombies() == []
        assert (one.declared_dead, other.declared_dead) == (0, 0)
        assert await issues.status(1) == "processing"

        await fleet.one_that_dies(settings, "dying")
        await Issues(one._store, "dying").checkout(2)
        await eventually(lambda: is_pending(issues, 2), within_s=SOON_S)
        assert await issues.processing() == ["1"]


async def replicated(sentinel: SentinelSetup, root: str) -> bool:
    return bool(sentinel.replica.call("SMEMBERS", f"{root}:issues:processing"))


async def heard(processes: Processes, process: str, beats: int) -> int:
    """The number of its heartbeats, once it is above this; while there is no primary, nobody can tell."""
    try:
        found = (await processes.info(process)).beats or 0
    except ProcessUnknown:
        return 0
    return found if found > beats else 0


async def is_pending(issues: Issues, issue: int) -> bool:
    return await issues.status(issue) == "pending"
