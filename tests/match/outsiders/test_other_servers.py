"""A server of their own for assignments, and a replica to read tickets from, as they look from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from tests.match.outsiders.specification import RawFrontend, connection_in, encode_assignment, encode_ticket
from tests.match.pairing import pairing

from kizuna.app import connect
from kizuna.errors import TicketMissing
from kizuna.match import Assignment, Group, Pool
from kizuna.service import running
from kizuna.settings import MatchSettings, Settings
from kizuna.testing import ServerProcess, eventually
from kizuna.testing.resp import Conversation


@pytest.fixture(scope="module")
def second() -> Iterator[ServerProcess]:
    with ServerProcess(config={"notify-keyspace-events": "AKE"}) as server:
        yield server


@pytest.fixture
def there(second: ServerProcess) -> Iterator[Conversation]:
    with second.connect() as conversation:
        yield conversation
        conversation.call("FLUSHALL")


@pytest.fixture
def apart(settings: Settings, second: ServerProcess) -> Settings:
    return msgspec.structs.replace(settings, match=MatchSettings(assignment_url=second.url))


@pytest.fixture
def reading(settings: Settings, second: ServerProcess) -> Settings:
    return msgspec.structs.replace(settings, match=MatchSettings(replica_url=second.url))


# -- assignments --------------------------------------------------------------------------------------------


async def test_assignments_are_on_their_server_and_nowhere_else(
    apart: Settings, outside: Conversation, there: Conversation, prefix: str
) -> None:
    async with connect(apart) as k:
        ids = [(await k.match.create_ticket()).id for _ in range(2)]
        await pairing(k.match).tick()

        assert {key.decode() for key in there.call("KEYS", "*")} == {f"{prefix}assign:{id_}" for id_ in ids}
        assert outside.call("KEYS", f"{prefix}assign:*") == []
        assert outside.call("EXISTS", f"{prefix}allTickets", f"{prefix}proposed_ticket_ids") == 0
        # What was on its way has arrived.
        assert outside.call("EXISTS", f"{prefix}kizuna:outbox") == 0
        for id_ in ids:
            assert 0 < there.call("TTL", f"{prefix}assign:{id_}") <= 60
            assert 0 < outside.call("TTL", prefix + id_) <= 60
        told = {connection_in(there.call("GET", f"{prefix}assign:{id_}")) for id_ in ids}
        assert told == {
            assignment.connection for id_ in ids if (assignment := (await k.match.get_ticket(id_)).assignment)
        }


async def test_who_waits_hears_of_it_there(apart: Settings, there: Conversation, prefix: str) -> None:
    async with connect(apart) as k:
        ticket = await k.match.create_ticket()
        waiting = asyncio.create_task(k.match.assignment(ticket.id, timeout_s=20))
        await eventually(lambda: k.match.watchers.number == 1)
        there.call("SET", f"{prefix}assign:{ticket.id}", b"\n\x03a:1", "EX", 60)

        assert (await waiting).connection == "a:1"


async def test_what_stands_there_already_is_not_overwritten(apart: Settings, there: Conversation, prefix: str) -> None:
    """A backend of somebody else's writes there without asking the main server."""
    async with connect(apart) as k:
        ticket = await k.match.create_ticket()
        there.call("SET", f"{prefix}assign:{ticket.id}", b"\n\x03a:1", "EX", 60)

        assert await k.match.assign_tickets([Group([ticket.id], Assignment("b:2"))]) == {ticket.id: "assigned"}
        assert there.call("GET", f"{prefix}assign:{ticket.id}") == b"\n\x03a:1"


async def test_what_is_assigned_there_leaves_the_index_here(
    apart: Settings, outside: Conversation, there: Conversation, prefix: str
) -> None:
    """One of theirs has died in between."""
    async with connect(apart) as k:
        id_ = (await k.match.create_ticket()).id
        there.call("SET", f"{prefix}assign:{id_}", encode_assignment("theirs:1"), "EX", 60)
        outside.call("ZADD", f"{prefix}proposed_ticket_ids", int(outside.call("TIME")[0]) - 31, id_)

        async with running(pairing(k.match)):
            await eventually(lambda: outside.call("EXISTS", f"{prefix}allTickets") == 0, within_s=40)


async def test_what_a_dead_backend_did_not_bring_there_any_other_brings(
    apart: Settings, outside: Conversation, there: Conversation, prefix: str
) -> None:
    async with connect(apart) as k:
        ticket = await k.match.create_ticket()
        outside.call("HSET", f"{prefix}kizuna:outbox", ticket.id, b"\n\x03a:1")

        assert await k.match.shards[0].deliver_left() == 1
        assert there.call("GET", f"{prefix}assign:{ticket.id}") == b"\n\x03a:1"
        assert outside.call("EXISTS", f"{prefix}kizuna:outbox") == 0


# -- a replica ----------------------------------------------------------------------------------------------


async def test_tickets_are_read_from_the_replica_and_those_that_it_lacks_from_the_primary(
    reading: Settings, outside: Conversation, there: Conversation, prefix: str
) -> None:
    on_primary, on_replica = RawFrontend(outside, prefix), RawFrontend(there, prefix)
    both = on_primary.create(tags=["primary"])
    there.call("SET", prefix + both, encode_ticket(both, ["replica"]), "EX", 60)
    only_primary = on_primary.create(tags=["primary"])
    only_replica = on_replica.create(tags=["replica"])

    async with connect(reading) as k:
        assert (await k.match.get_ticket(both)).tags == ["replica"]
        assert (await k.match.get_ticket(only_primary)).tags == ["primary"]
        # Who waits is known to the primary alone.
        waiting = {ticket.id: ticket.tags for ticket in await k.match.query_tickets(Pool("everyone"))}
        assert waiting == {both: ["replica"], only_primary: ["primary"]}
        assert (await k.match.get_ticket(only_replica)).tags == ["replica"]
        with pytest.raises(TicketMissing):
            await k.match.get_ticket("nobody")


async def test_assignments_are_never_read_from_the_replica_and_everything_is_written_to_the_primary(
    reading: Settings, outside: Conversation, there: Conversation, prefix: str
) -> None:
    async with connect(reading) as k:
        ids = [(await k.match.create_ticket()).id for _ in range(2)]
        there.call("SET", f"{prefix}assign:{ids[0]}", b"\n\x03a:1", "EX", 60)
        assert (await k.match.get_ticket(ids[0])).assignment is None

        await pairing(k.match).tick()
        assert await k.match.get_ticket(ids[0])
        assert outside.call("GET", f"{prefix}assign:{ids[0]}") not in (None, b"\n\x03a:1")
        assert {key.decode() for key in there.call("KEYS", "*")} == {f"{prefix}assign:{ids[0]}"}


async def test_a_replica_that_is_behind_or_away_costs_nobody_a_match(reading: Settings, frontend: RawFrontend) -> None:
    """It is empty: nothing has arrived there yet."""
    ids = [frontend.create() for _ in range(4)]

    async with connect(reading) as k:
        assert (await pairing(k.match).tick()).assigned == 4

    assert all(frontend.assignment(id_) for id_ in ids)
