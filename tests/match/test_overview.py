from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from kizuna.app import Kizuna, connect
from kizuna.errors import TicketMissing
from kizuna.match import Assignment, Group, Pool, Ticket
from kizuna.match.overview import Overview, Seen, crowd_of
from kizuna.match.tickets import new_ticket
from kizuna.settings import MatchSettings, RootsSettings, Settings, StoreSettings
from kizuna.store.events.feeds import LookAgain
from kizuna.testing.clusters import ClusterSetup
from kizuna.testing.leaks import BEHIND_MATCH
from kizuna.testing.servers import ServerProcess

# More than an hour, by far.
HOURS_S = 50_000


@pytest_asyncio.fixture
async def k(settings: Settings) -> AsyncIterator[Kizuna]:
    async with connect(settings) as k:
        yield k


async def assign(k: Kizuna, ticket: Ticket, connection: str = "host:1") -> None:
    assert await k.match.assign_tickets([Group([ticket.id], Assignment(connection))]) == {}


async def test_each_ticket_is_seen_where_it_is(k: Kizuna) -> None:
    waiting, pending, assigned, out = [await k.match.create_ticket(tags=[name]) for name in "abcd"]
    await k.match.shards[0].take([pending.id], "somebody", begins=True)
    await assign(k, assigned)
    await k.match.deindex_ticket(out.id)
    overview = Overview(k.match)

    seen = await overview.tickets()
    assert [(one.ticket, one.state) for one in seen] == [(waiting, "waiting"), (pending, "pending")]
    assert seen[0].pending_since is None
    assert seen[1].pending_since is not None
    [found] = await overview.assigned()
    assert (found.ticket.id, found.state) == (assigned.id, "assigned")
    assert found.ticket.assignment == Assignment("host:1")
    states = [(await overview.one(ticket.id)).state for ticket in (waiting, pending, assigned, out)]
    assert states == ["waiting", "pending", "assigned", "deindexed"]
    with pytest.raises(TicketMissing):
        await overview.one("nobody")


@pytest.mark.parametrize("taken_at_s", [-HOURS_S, HOURS_S])
async def test_who_was_taken_by_no_clock_or_long_ago_waits_to_whoever_asks(k: Kizuna, taken_at_s: int) -> None:
    ticket, shard = await k.match.create_ticket(), k.match.shards[0]
    await k.store.call("ZADD", shard.proposed, int(await k.store.time_s()) + taken_at_s, ticket.id)
    overview = Overview(k.match)

    assert [one.state for one in await overview.tickets()] == ["waiting"]
    assert (await overview.one(ticket.id)).state == "waiting"
    assert (await shard.take([ticket.id], "somebody", begins=True)).ids == [ticket.id]


async def test_what_is_no_ticket_is_not_seen(k: Kizuna) -> None:
    prefix = k.match.shards[0].prefix
    await k.store.call("SADD", f"{prefix}allTickets", "0123456789abcdefghi0", "0123456789abcdefghig")
    await k.store.call("SET", f"{prefix}0123456789abcdefghi0", b"\xff\xff", "EX", 60)

    assert await Overview(k.match).tickets() == []
    await k.match.deindex_ticket("0123456789abcdefghi0")
    await k.match.deindex_ticket("0123456789abcdefghig")


async def told_of(k: Kizuna, tickets: list[Ticket]) -> dict[str, str]:
    """What is told when these are assigned, each to another server."""
    found: dict[str, str] = {}
    async with asyncio.timeout(60), Overview(k.match).assignments() as assignments:
        for ticket in tickets:
            await assign(k, ticket, f"host:{ticket.id}")
        while len(found) < len(tickets):
            told = await anext(assignments)
            if isinstance(told, LookAgain):
                seen = [one.ticket for one in await Overview(k.match).assigned()]
                found |= {ticket.id: ticket.assignment.connection for ticket in seen if ticket.assignment}
            else:
                found[told[0]] = told[1].connection
    return found


async def test_assignments_are_told_as_they_are_made(k: Kizuna) -> None:
    tickets = [await k.match.create_ticket() for _ in range(3)]

    assert await told_of(k, tickets) == {ticket.id: f"host:{ticket.id}" for ticket in tickets}


async def test_also_where_another_server_has_the_assignments(settings: Settings, fresh_server: ServerProcess) -> None:
    match = MatchSettings(assignment_url=fresh_server.url)
    async with connect(msgspec.structs.replace(settings, match=match)) as k:
        ticket = await k.match.create_ticket()
        assert await told_of(k, [ticket]) == {ticket.id: f"host:{ticket.id}"}

        assert (await Overview(k.match).one(ticket.id)).state == "assigned"
        assert [seen.ticket.id for seen in await Overview(k.match).assigned()] == [ticket.id]


async def test_over_all_shards_of_a_cluster(cluster: ClusterSetup, root: str) -> None:
    roots = RootsSettings(system=root, coordination=root, units=root, memory=root, match=f"{root}{BEHIND_MATCH}")
    match = MatchSettings(shards=4, partition_arg="region")
    async with connect(Settings(store=StoreSettings(url=cluster.url), roots=roots, match=match)) as k:
        tickets = [await k.match.create_ticket(strings={"region": region}) for region in ("eu", "us", "asia", "mars")]
        overview = Overview(k.match)

        assert [seen.ticket for seen in await overview.tickets()] == tickets
        assert len({k.match.roots.of(ticket.id) for ticket in tickets}) > 1
        assert await told_of(k, tickets[:2]) == {ticket.id: f"host:{ticket.id}" for ticket in tickets[:2]}
        states = [(await overview.one(ticket.id)).state for ticket in tickets]
        assert states == ["assigned", "assigned", "waiting", "waiting"]
        assert {seen.ticket.id for seen in await overview.assigned()} == {ticket.id for ticket in tickets[:2]}
        for ticket in tickets:
            await k.match.delete_ticket(ticket.id)


def seen_at(created_s: int, *tags: str, pending: bool = False) -> Seen:
    message = new_ticket(tags=tags)
    message.create_time.seconds = created_s
    return Seen(Ticket(message), "pending" if pending else "waiting")


def test_a_crowd_is_counted_and_how_long_it_waits() -> None:
    seen = [seen_at(90, "a"), seen_at(70, "a"), seen_at(40, "a", pending=True), seen_at(10, "b")]
    crowd = crowd_of(Pool("a", tags=["a"]), seen, now_s=100)

    assert (crowd.waiting, crowd.pending, crowd.oldest_s) == (2, 1, 30)
    assert (crowd.p50_s, crowd.p99_s) == (30, 30)
    nobody = crowd_of(Pool("c", tags=["c"]), seen, now_s=100)
    assert (nobody.waiting, nobody.pending, nobody.oldest_s, nobody.p50_s) == (0, 0, None, None)
