"""The same matchmaking on a single server, behind Sentinel, on a cluster; with assignments elsewhere, and a replica."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import msgspec
import pytest
from tests.match.pairing import at_once, connections, pairing

from kizuna.app import Kizuna, connect
from kizuna.errors import KizunaError, SettingsError, TicketMissing
from kizuna.match import Assignment, Group, Match, Pool
from kizuna.match.openmatch import messages_pb2
from kizuna.service import running
from kizuna.settings import MatchSettings, RootsSettings, Settings, StoreSettings
from kizuna.store.keys import key_slot
from kizuna.testing import ClusterSetup, SentinelSetup, ServerProcess, eventually

LONG_S = 40.0
SHARDS = 6


def on(url: str, root: str, **match: object) -> Settings:
    return Settings(
        store=StoreSettings(url=url, reconnect_longest_s=0.2),
        roots=RootsSettings(system=root, coordination=root, match=f"{root}."),
        coordination=msgspec.structs.replace(Settings().coordination, shards=2),
        match=MatchSettings(**match),  # type: ignore[arg-type]
    )


@pytest.fixture(params=["single", "sentinel", "cluster", "redis"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "redis":
            redis = ServerProcess(binary=request.getfixturevalue("redis_binary"))
            yield stack.enter_context(redis).url
        else:
            yield request.getfixturevalue({"single": "server"}.get(request.param, request.param)).url


@pytest.fixture(params=["script", "lock"])
async def k(url: str, root: str, request: pytest.FixtureRequest) -> AsyncIterator[Kizuna]:
    settings = on(url, root, shards=SHARDS, partition_arg="mode", guard=request.param)
    async with connect(settings) as k:
        yield k


async def test_tickets_of_one_partition_meet_whatever_the_server_is(k: Kizuna) -> None:
    mm = k.match
    async with running(pairing(mm)):
        modes = [f"mode-{number}" for number in range(8)]
        tickets = await asyncio.gather(*(mm.create_ticket(strings={"mode": mode}) for mode in modes * 2))
        assignments = await asyncio.gather(*(mm.assignment(ticket.id, timeout_s=LONG_S) for ticket in tickets))

    met = Counter(assignment.connection for assignment in assignments)
    assert set(met.values()) == {2}
    by_mode: dict[str, set[str]] = {}
    for ticket, assignment in zip(tickets, assignments, strict=True):
        by_mode.setdefault(mm._shard_of(ticket.id).prefix, set()).add(ticket.strings["mode"])
        assert (await mm.get_ticket(ticket.id)).assignment == assignment
    # Each partition is in one shard, and they are in several.
    assert sum(len(modes) for modes in by_mode.values()) == len(modes)
    assert len(by_mode) > 1
    assert await mm.count() == 0


async def test_backfills_are_found_and_filled_whatever_the_server_is(k: Kizuna) -> None:
    mm = k.match
    backfill = await mm.create_backfill(strings={"mode": "casual"}, doubles={"open_slots": 1})
    ticket = await mm.create_ticket(strings={"mode": "casual"})
    assert [one.id for one in await mm.query_backfills(Pool("all"))] == [backfill.id]
    assert mm._shard_of(ticket.id) is mm._shard_of(backfill.id)

    [match] = await mm.propose([Match([ticket], backfill=backfill, allocate=False)])
    assert match.backfill is not None
    assert match.backfill.generation == 2
    acknowledged, tickets = await mm.acknowledge_backfill(backfill.id, Assignment("running:1"))
    assert acknowledged.generation == 2
    assert [one.id for one in tickets] == [ticket.id]
    assert await connections(mm, ticket.id) == ["running:1"]
    await mm.delete_backfill(backfill.id)


async def test_all_keys_of_a_shard_are_in_one_slot(cluster: ClusterSetup, root: str) -> None:
    async with connect(on(cluster.url, root, shards=SHARDS)) as k:
        for shard in k.match.shards:
            names = ("all_tickets", "proposed", "outbox", "backends")
            keys = [getattr(shard, name) for name in names]
            keys += [
                shard.body("x"),
                shard.assignment("x"),
                shard.held("b", 0),
                f"rueidislock:0:{shard.prefix}fetchTicketsLock",
            ]
            assert len({key_slot(key) for key in keys}) == 1


async def test_a_cluster_needs_shards(cluster: ClusterSetup, root: str) -> None:
    async with connect(on(cluster.url, root)) as k:
        with pytest.raises(SettingsError, match=r"match\.shards = 1 does not work on a cluster"):
            _ = k.match


async def test_matches_go_on_after_a_failover(fresh_sentinel: SentinelSetup, root: str) -> None:
    settings = on(fresh_sentinel.url, root, tick_every_s=0.2)
    async with connect(settings) as k, running(pairing(k.match)):
        mm = k.match
        one, _ = await mm.create_ticket(), await mm.create_ticket()
        await mm.assignment(one.id, timeout_s=LONG_S)
        await asyncio.to_thread(fresh_sentinel.primary.kill)

        async def two_more_meet() -> bool:
            try:
                async with asyncio.timeout(10):
                    one, two = await mm.create_ticket(), await mm.create_ticket()
                    await mm.assignment(one.id)
                    return bool(await mm.assignment(two.id))
            except (KizunaError, TimeoutError):
                return False

        await eventually(two_more_meet, within_s=LONG_S, every_s=0.2)


# -- assignments on another server ----------------------------------------------------------------------------------


async def test_assignments_are_on_their_own_server_and_players_hear_of_them(
    server: ServerProcess, fresh_server: ServerProcess, root: str
) -> None:
    settings = on(server.url, root, assignment_url=fresh_server.url, look_every_s=3_600)
    async with connect(settings) as k, running(pairing(k.match)):
        one, two = await asyncio.gather(k.match.create_ticket(), k.match.create_ticket())
        first, second = await asyncio.gather(
            *(k.match.assignment(ticket.id, timeout_s=LONG_S) for ticket in (one, two))
        )

        assert first == second
        key = f"{root}.assign:{one.id}"
        assert fresh_server.call("GET", key) == first.encode()
        assert 0 < fresh_server.call("TTL", key) <= 60
        assert server.call("EXISTS", key, f"{root}.kizuna:outbox") == 0
        assert (await k.match.get_ticket(two.id)).assignment == second
        assert await k.match.assign_tickets([Group([one.id], Assignment("other:1"))]) == {one.id: "assigned"}
        assert await k.match.assign_tickets([Group([one.id], first)]) == {}
        await k.match.delete_ticket(one.id)
        assert fresh_server.call("EXISTS", key) == 0
        with pytest.raises(TicketMissing):
            await k.match.get_ticket(one.id)


async def test_assignments_that_are_made_while_their_server_is_away_are_told_when_it_is_back(
    server: ServerProcess, fresh_server: ServerProcess, root: str
) -> None:
    settings = on(server.url, root, assignment_url=fresh_server.url, assigned_s=600, tick_every_s=0.2)
    async with connect(settings) as k, running(pairing(k.match)):
        one = await k.match.create_ticket()
        waiting = asyncio.ensure_future(k.match.assignment(one.id))
        await eventually(lambda: k.match.watchers.number == 1, within_s=LONG_S)
        # Its first look was sent before this one, on the same connection, so it is over as well.
        await k.match.get_ticket(one.id)
        await asyncio.to_thread(fresh_server.stop)
        two = await k.match.create_ticket()
        outbox = k.match.shards[0].outbox
        await eventually(lambda: server.call("HLEN", outbox) == 2, within_s=LONG_S)
        assert not waiting.done()
        await asyncio.to_thread(fresh_server.start)

        async with asyncio.timeout(LONG_S):
            first, second = await waiting, await k.match.assignment(two.id)
        assert first == second
        await eventually(lambda: server.call("HLEN", outbox) == 0, within_s=LONG_S)


async def test_what_a_backend_left_undelivered_when_it_died_is_delivered_by_another(
    server: ServerProcess, fresh_server: ServerProcess, root: str
) -> None:
    settings = on(server.url, root, assignment_url=fresh_server.url, tick_every_s=0.1)
    async with connect(settings) as k:
        ticket = await k.match.create_ticket()
        waiting = asyncio.create_task(k.match.assignment(ticket.id, timeout_s=LONG_S))
        shard = k.match.shards[0]
        deliver, shard.deliver = shard.deliver, nothing  # type: ignore[method-assign, assignment]
        assert await shard.assign([Group([ticket.id], Assignment("late:1"))]) == [[]]
        shard.deliver = deliver  # type: ignore[method-assign]
        assert server.call("HLEN", f"{root}.kizuna:outbox") == 1
        assert await k.match.count() == 0
        async with running(pairing(k.match)):
            assert (await waiting).connection == "late:1"
            await eventually(lambda: server.call("EXISTS", f"{root}.kizuna:outbox") == 0)
        await k.match.delete_ticket(ticket.id)


async def nothing(_pairs: object) -> set[str]:
    return set()


async def test_an_assignment_that_is_there_already_stands(
    server: ServerProcess, fresh_server: ServerProcess, root: str
) -> None:
    async with connect(on(server.url, root, assignment_url=fresh_server.url)) as k:
        ticket = await k.match.create_ticket()
        fresh_server.call("SET", f"{root}.assign:{ticket.id}", Assignment("first:1").encode(), "EX", 60)

        assert await k.match.assign_tickets([Group([ticket.id], Assignment("second:1"))]) == {ticket.id: "assigned"}
        assert (await k.match.get_ticket(ticket.id)).assignment == Assignment("first:1")
        await k.match.delete_ticket(ticket.id)


# -- a replica to read from -----------------------------------------------------------------------------------------


async def test_tickets_are_read_from_the_replica_first_and_from_the_primary_if_it_has_none(
    server: ServerProcess, fresh_server: ServerProcess, root: str
) -> None:
    async with connect(on(server.url, root, replica_url=fresh_server.url)) as k:
        mm = k.match
        both, primary = await mm.create_ticket(tags=["primary"]), await mm.create_ticket()
        copy = messages_pb2.Ticket(id=both.id)
        copy.search_fields.tags.append("replica")
        fresh_server.call("SET", f"{root}.{both.id}", copy.SerializeToString(), "EX", 60)

        assert (await mm.get_ticket(both.id)).tags == ["replica"]
        assert (await mm.get_ticket(primary.id)).id == primary.id
        assert {ticket.id: ticket.tags for ticket in await mm.query_tickets(Pool("all"))} == {
            both.id: ["replica"],
            primary.id: [],
        }
        await asyncio.to_thread(fresh_server.kill)
        assert (await mm.get_ticket(both.id)).tags == ["primary"]
        for ticket in (both, primary):
            await mm.delete_ticket(ticket.id)


async def test_a_replica_that_does_not_answer_is_left_alone_for_a_while(
    server: ServerProcess, fresh_server: ServerProcess, root: str
) -> None:
    fresh_server.kill()
    async with connect(on(server.url, root, replica_url=fresh_server.url)) as k:
        tickets = [await k.match.create_ticket() for _ in range(2)]

        assert (await k.match.get_ticket(tickets[0].id)).id == tickets[0].id
        assert await k.match.servers.replica() is None
        assert (await pairing(k.match, at_once).tick()).assigned == 2


async def test_a_ticket_that_only_the_replica_still_has_is_not_assigned(
    server: ServerProcess, fresh_server: ServerProcess, root: str
) -> None:
    async with connect(on(server.url, root, replica_url=fresh_server.url)) as k:
        one, two = await k.match.create_ticket(), await k.match.create_ticket()
        fresh_server.call("SET", f"{root}.{one.id}", one.encode(), "EX", 60)
        server.call("DEL", f"{root}.{one.id}")
        tick = await pairing(k.match, at_once).tick()

        assert tick.assigned == 0
        assert await k.match.query_ids(Pool("all")) == [two.id]
        await k.match.delete_ticket(two.id)
