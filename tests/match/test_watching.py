"""Waiting for an assignment: told at once, told once, and told when there is nothing left to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial

import msgspec
import pytest
from tests.match.pairing import pairing

from kizuna.app import Kizuna, connect
from kizuna.errors import TicketMissing, Unreachable
from kizuna.match import Assignment, Group
from kizuna.match.matchmaking import Matchmaking
from kizuna.service import running
from kizuna.settings import MatchSettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import ChaosProxy, ServerProcess, eventually
from kizuna.testing.users import signed_in

MakeProxy = Callable[..., Awaitable[ChaosProxy]]
HOURS = 3_600.0


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Nothing is looked at by the clock: what is told was heard of."""
    return msgspec.structs.replace(settings, match=MatchSettings(look_every_s=HOURS))


async def assign(mm: Matchmaking, id_: str, connection: str) -> None:
    assert await mm.assign_tickets([Group([id_], Assignment(connection))]) == {}


def is_told(told: list[str], connection: str) -> bool:
    return told[-1:] == [connection]


async def watching(mm: Matchmaking, number: int) -> None:
    await eventually(lambda: mm.watchers.number == number, within_s=30)


async def test_who_waits_is_told_when_it_happens(mm: Matchmaking) -> None:
    tickets = [await mm.create_ticket() for _ in range(20)]
    waits = [asyncio.create_task(mm.assignment(ticket.id, timeout_s=30)) for ticket in tickets]
    await watching(mm, 20)
    for number, ticket in enumerate(tickets):
        await assign(mm, ticket.id, f"a:{number}")

    assert [one.connection for one in await asyncio.gather(*waits)] == [f"a:{number}" for number in range(20)]
    assert mm.watchers.number == 0


async def test_who_comes_late_is_told_at_once(mm: Matchmaking) -> None:
    ticket = await mm.create_ticket()
    await assign(mm, ticket.id, "a:1")

    for _ in range(3):
        assert (await mm.assignment(ticket.id, timeout_s=30)).connection == "a:1"


async def test_an_assignment_is_told_once_and_one_that_differs_again(mm: Matchmaking, server: ServerProcess) -> None:
    ticket = await mm.create_ticket()
    key = mm.shards[0].assignment(ticket.id)
    told: list[str] = []

    async def listen() -> None:
        async with aclosing(mm.watch_assignments(ticket.id)) as assignments:
            async for assignment in assignments:
                told.append(assignment.connection)  # noqa: PERF401 - each as it comes

    listening = asyncio.create_task(listen())
    for connection in ("a:1", "b:2", "b:2", "c:3"):
        server.call("SET", key, Assignment(connection).encode(), "EX", 60)
        await eventually(partial(is_told, told, connection), within_s=30)
    assert told == ["a:1", "b:2", "c:3"]
    await mm.delete_ticket(ticket.id)
    with pytest.raises(TicketMissing):
        await asyncio.wait_for(listening, 30)


async def test_a_ticket_that_never_was_is_missing_at_once(mm: Matchmaking) -> None:
    with pytest.raises(TicketMissing, match="never-was"):
        await mm.assignment("never-was", timeout_s=30)


async def test_who_waits_for_a_ticket_that_is_deleted_is_told(mm: Matchmaking) -> None:
    ticket = await mm.create_ticket()
    waiting = asyncio.create_task(mm.assignment(ticket.id, timeout_s=30))
    await watching(mm, 1)
    await mm.delete_ticket(ticket.id)

    with pytest.raises(TicketMissing):
        await waiting


@pytest.mark.parametrize("ends", ["deleted by others", "expired"])
async def test_a_ticket_that_ends_unannounced_is_noticed_by_looking(
    settings: Settings, server: ServerProcess, ends: str
) -> None:
    async with connect(msgspec.structs.replace(settings, match=MatchSettings(look_every_s=0.1))) as k:
        ticket = await k.match.create_ticket()
        waiting = asyncio.create_task(k.match.assignment(ticket.id, timeout_s=30))
        await watching(k.match, 1)
        if ends == "expired":
            server.call("PEXPIRE", k.match.shards[0].body(ticket.id), 1)
        else:
            server.call("DEL", k.match.shards[0].body(ticket.id))

        with pytest.raises(TicketMissing):
            await waiting
        await k.match.delete_ticket(ticket.id)


async def test_waiting_ends_with_the_time_that_was_given(mm: Matchmaking) -> None:
    ticket = await mm.create_ticket()

    with pytest.raises(TimeoutError):
        await mm.assignment(ticket.id, timeout_s=0.05)
    assert mm.watchers.number == 0


async def test_what_happened_while_the_connection_was_away_is_told_after_it(
    settings: Settings, proxy: MakeProxy, mm: Matchmaking
) -> None:
    between = await proxy()
    async with connect(msgspec.structs.replace(settings, store=StoreSettings(url=between.url))) as k:
        tickets = [await k.match.create_ticket() for _ in range(2)]
        waits = [asyncio.create_task(k.match.assignment(ticket.id, timeout_s=50)) for ticket in tickets]
        await watching(k.match, 2)
        between.refuse()
        await between.cut()
        for ticket in tickets:
            await assign(mm, ticket.id, "meanwhile:1")
        await between.accept()

        assert [one.connection for one in await asyncio.gather(*waits)] == ["meanwhile:1"] * 2


async def test_where_nothing_is_announced_it_is_looked_for(fresh_server: ServerProcess, root: str) -> None:
    fresh_server.call("CONFIG", "SET", "notify-keyspace-events", "")
    roots = RootsSettings(system=root, match=f"{root}.")
    settings = Settings(store=StoreSettings(url=fresh_server.url), roots=roots, match=MatchSettings(look_every_s=HOURS))
    with signed_in([fresh_server], settings, ["~*", "&*", "+@all", "-config"]) as limited:
        async with connect(limited) as k:
            ticket, other = await k.match.create_ticket(), await k.match.create_ticket()
            waits = [asyncio.create_task(k.match.assignment(one.id, timeout_s=30)) for one in (ticket, other)]
            await watching(k.match, 2)
            assert k.match.watchers.is_polling
            await assign(k.match, ticket.id, "a:1")

            assert (await waits[0]).connection == "a:1"
            async with running(pairing(k.match)):
                await k.match.create_ticket()
                assert (await waits[1]).connection


async def test_closing_ends_those_who_wait(settings: Settings) -> None:
    k = await connect(settings)
    ticket = await k.match.create_ticket()
    waiting = asyncio.create_task(k.match.assignment(ticket.id, timeout_s=30))
    await watching(k.match, 1)
    await k.match.delete_ticket("other")
    await k.aclose()

    with pytest.raises(Unreachable):
        await waiting
    async with connect(settings) as again:
        await again.match.delete_ticket(ticket.id)


async def test_a_thousand_wait_on_one_subscription(k: Kizuna) -> None:
    mm = k.match
    tickets = await asyncio.gather(*(mm.create_ticket() for _ in range(1_000)))
    waits = [asyncio.create_task(mm.assignment(ticket.id, timeout_s=50)) for ticket in tickets]
    await watching(mm, 1_000)
    groups = [Group([ticket.id], Assignment(f"a:{number}")) for number, ticket in enumerate(tickets)]
    assert await mm.assign_tickets(groups) == {}

    assert [one.connection for one in await asyncio.gather(*waits)] == [f"a:{number}" for number in range(1_000)]
