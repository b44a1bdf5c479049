"""The fleet: who is there, who has left, and what they say about themselves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from kizuna.app import Kizuna
from kizuna.coordination.processes import Processes
from kizuna.errors import ProcessTaken, ProcessUnknown, ServiceFailed, WrongValue
from kizuna.service import running
from kizuna.settings import ProcessesSettings, Settings
from kizuna.testing import ServerProcess, assert_starts_and_stops, eventually
from kizuna.testing.waiting import blocking_until

EVERY_S = 0.1

Join = Callable[..., Awaitable[Processes]]


@pytest_asyncio.fixture
async def fleet(settings: Settings) -> AsyncIterator[Join]:
    """A function that makes the `Processes` of another process: with connections and a background of its own."""
    opened: list[Kizuna] = []

    async def join(process: str, **options: Any) -> Processes:
        section = ProcessesSettings(heartbeat_every_s=EVERY_S, **options)
        k = Kizuna(msgspec.structs.replace(settings, processes=section))
        opened.append(k)
        await k.store.open()
        return Processes(k.store, k.background, process)

    yield join
    for k in opened:
        await k.aclose()


async def names(processes: Processes) -> list[str]:
    return [process.id for process in await processes.active()]


async def test_members_see_each_other_come_and_go(fleet: Join) -> None:
    one, other = await fleet("one"), await fleet("other")
    async with running(one.membership(kind="web")):
        assert await names(other) == ["one"]
        async with running(other.membership()):
            assert await names(one) == ["one", "other"]
        assert await names(one) == ["one"]
    assert await names(other) == []
    assert await other.zombies() == []


async def test_a_process_says_about_itself_what_it_likes(fleet: Join) -> None:
    processes = await fleet("one")
    began = time.time()
    async with running(processes.membership(kind="web", info={"port": 8080, "role": "leader"})):
        # On a machine that stands still it may have been silent for a moment.
        await eventually(lambda: is_heard(processes, "one"))
        await eventually(lambda: beaten(processes, "one", 3))
        found = await processes.info("one")

    assert found.kind == "web"
    assert found.info == {"port": "8080", "role": "leader"}
    assert abs((found.started_at or 0) - began) < 60
    with pytest.raises(ProcessUnknown):
        await processes.info("one")


async def is_heard(processes: Processes, process: str) -> bool:
    return (await processes.info(process)).state == "alive"


async def beaten(processes: Processes, process: str, times: int) -> bool:
    return ((await processes.info(process)).beats or 0) >= times


async def test_a_handle_can_tell_more_and_leave(fleet: Join) -> None:
    processes = await fleet("one")
    handle = await processes.register({"role": "follower"}, id="by-another-name")
    await handle.update({"role": "leader", "term": 2})

    assert (await processes.info("by-another-name")).info == {"role": "leader", "term": "2"}
    assert await processes.is_alive("by-another-name")
    await handle.leave()
    await handle.leave()
    assert not await processes.is_alive("by-another-name")


async def test_what_is_on_the_server_is_for_everybody_to_read(fleet: Join, server: ServerProcess, root: str) -> None:
    processes = await fleet("issue-123-poppo")
    async with running(processes.membership(kind="web")):
        assert server.call("SMEMBERS", f"{root}:processes:active") == [b"issue-123-poppo"]
        assert server.call("GET", f"{root}:process:heartbeat:issue-123-poppo") == b"alive"
        assert 1700 < server.call("TTL", f"{root}:process:heartbeat:issue-123-poppo") <= 1800
        assert server.call("HGET", f"{root}:process:info:issue-123-poppo", "kind") == b"web"
    assert server.call("EXISTS", f"{root}:process:heartbeat:issue-123-poppo") == 0


async def test_several_parts_of_one_program_share_its_name(fleet: Join) -> None:
    processes = await fleet("one")
    async with running(processes.membership(kind="worker", info={"a": 1})):
        async with processes.membership(kind="web", info={"b": 2}):
            assert (await processes.info("one")).info == {"a": "1", "b": "2"}
        assert await names(processes) == ["one"]
        await eventually(lambda: beaten(processes, "one", 4))
    assert await names(processes) == []


async def test_a_name_that_somebody_alive_has_is_refused(fleet: Join) -> None:
    one, impostor = await fleet("one"), await fleet("one")
    async with running(one.membership(info={"first": "yes"})):
        with pytest.raises(ProcessTaken) as taken:
            await impostor.register()
        assert str(taken.value) == (
            "another process called 'one' is at work; end it, or set processes.id to something else"
        )
        assert (await one.info("one")).info == {"first": "yes"}
    await (await impostor.register()).leave()


async def test_who_loses_its_name_to_another_is_told_so(fleet: Join, server: ServerProcess, root: str) -> None:
    processes = await fleet("one")

    async def be_a_member() -> None:
        async with running(processes.membership()):
            server.call("HSET", f"{root}:process:info:one", "token", "somebody else's")
            await asyncio.sleep(30)

    with pytest.raises(ServiceFailed) as failed:
        await be_a_member()
    assert isinstance(failed.value.__cause__, ProcessTaken)
    assert await names(processes) == ["one"]


async def test_an_event_loop_that_stands_still_goes_on_being_heard_of(
    fleet: Join, server: ServerProcess, root: str
) -> None:
    processes = await fleet("one")
    async with running(processes.membership()):
        before = (await processes.info("one")).beats or 0
        # Without a single await, however long it takes: the loop of this test stands still.
        blocking_until(lambda: int(server.call("HGET", f"{root}:process:info:one", "beats")) > before + 6)


async def test_what_the_server_forgets_is_told_again(fleet: Join, server: ServerProcess, root: str) -> None:
    processes = await fleet("one")
    async with running(processes.membership(info={"port": 1})):
        for key in ("process:info:one", "processes:active", "processes:deadlines", "process:heartbeat:one"):
            server.call("DEL", f"{root}:{key}")
        await eventually(lambda: names(processes))
        assert (await processes.info("one")).info == {"port": "1"}
        assert processes.declared_dead == 0


async def test_a_full_server_kills_nobody(settings: Settings) -> None:
    with ServerProcess() as server:
        full = msgspec.structs.replace(
            settings,
            store=msgspec.structs.replace(settings.store, url=server.url),
            processes=ProcessesSettings(heartbeat_every_s=EVERY_S),
        )
        k = Kizuna(full)
        await k.store.open()
        processes = Processes(k.store, k.background, "one")
        async with running(processes.membership()):
            server.call("CONFIG", "SET", "maxmemory", 1)
            before = (await processes.info("one")).beats or 0
            await eventually(lambda: beaten(processes, "one", before + 8))
            await eventually(lambda: is_heard(processes, "one"))
        assert await names(processes) == []
        await k.aclose()


async def test_fields_that_the_heartbeat_writes_are_refused(fleet: Join) -> None:
    processes = await fleet("one")
    for info in ({"token": "x"}, {"died_at": 1}, {"": "x"}, {"a": object()}):
        with pytest.raises(WrongValue):
            await processes.register(info)
    assert await names(processes) == []


async def test_it_starts_and_stops(fleet: Join) -> None:
    processes = await fleet("one")

    async def is_there() -> bool:
        return await names(processes) == ["one"]

    # The background stays with its Kizuna: started before, so that it is not taken for a leak.
    async with running(processes.membership()):
        pass
    await assert_starts_and_stops(processes.membership, times=20, check_working=is_there)
    assert await names(processes) == []


async def test_numbers_for_the_metrics(fleet: Join) -> None:
    one, other = await fleet("one"), await fleet("other")
    async with running(one.membership(), other.membership()):
        await one.look()
        assert {measure.name: measure.value for measure in one.measures()} == {
            "kizuna_processes_active": 2,
            "kizuna_processes_zombies": 0,
            "kizuna_process_deaths_total": 0,
            "kizuna_process_declared_dead_total": 0,
        }


# outsiders, who know nothing but the names of the keys


async def test_an_outsider_lives_by_its_heartbeat_alone(fleet: Join, server: ServerProcess, root: str) -> None:
    processes = await fleet("one")
    dead: list[str] = []

    async def hook(process: str) -> None:
        dead.append(process)

    processes.on_death(hook)
    server.call("SADD", f"{root}:processes:active", "shell", "not a:name")
    server.call("SET", f"{root}:process:heartbeat:shell", "1", "EX", 60)
    async with running(processes.membership()):
        assert await names(processes) == ["one", "shell"]
        with pytest.raises(ProcessTaken):
            await processes.register(id="shell")
        for _ in range(10):
            await processes.look()
        assert dead == []

        server.call("DEL", f"{root}:process:heartbeat:shell")
        await eventually(lambda: dead == ["shell"])
        await eventually(lambda: given_back(processes, "shell"))
        assert await names(processes) == ["one"]

        # It comes back by the same commands, and dies again.
        server.call("SET", f"{root}:process:heartbeat:shell", "1", "EX", 60)
        server.call("SADD", f"{root}:processes:active", "shell")
        await eventually(lambda: not_a_zombie(processes))
        server.call("DEL", f"{root}:process:heartbeat:shell")
        await eventually(lambda: dead == ["shell", "shell"])
    server.call("SREM", f"{root}:processes:active", "not a:name")


async def given_back(processes: Processes, process: str) -> bool:
    found = await processes.info(process)
    return found.state == "zombie" and found.given_back_at is not None


async def not_a_zombie(processes: Processes) -> bool:
    return await processes.zombies() == []
