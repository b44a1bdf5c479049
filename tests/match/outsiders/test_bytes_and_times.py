"""What is on the server after each step of ours, byte for byte, and for how long."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.match.pairing import pairing

from kizuna.app import connect
from kizuna.match import Assignment, Group
from kizuna.match.matchmaking import Matchmaking
from kizuna.match.openmatch import messages_pb2
from kizuna.settings import MatchSettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import ServerProcess
from kizuna.testing.leaks import scan
from kizuna.testing.resp import Conversation

USUAL_S = 600


class Stored:
    """All that is behind a prefix, with plain commands."""

    def __init__(self, conversation: Conversation, prefix: str) -> None:
        self._call, self._prefix, self._conversation = conversation.call, prefix, conversation

    def names(self) -> set[str]:
        """Without what is only ours to know, which nobody else reads."""
        names = {key.decode().removeprefix(self._prefix) for key in scan(self._conversation, f"{self._prefix}*")}
        return {name for name in names if not name.startswith("kizuna:")}

    def waiting(self) -> set[str]:
        return {id_.decode() for id_ in self._call("SMEMBERS", f"{self._prefix}allTickets")}

    def pending(self) -> dict[str, str]:
        flat = self._call("ZRANGE", f"{self._prefix}proposed_ticket_ids", 0, -1, "WITHSCORES")
        return {id_.decode(): score.decode() for id_, score in zip(flat[::2], flat[1::2], strict=True)}

    def value(self, name: str) -> Any:
        return self._call("GET", self._prefix + name)

    def ttl_s(self, name: str) -> int:
        return int(self._call("TTL", self._prefix + name))

    def type(self, name: str) -> bytes:
        return bytes(self._call("TYPE", self._prefix + name))


@pytest.fixture
def stored(outside: Conversation, prefix: str) -> Stored:
    return Stored(outside, prefix)


async def test_a_ticket_is_two_keys(mm: Matchmaking, stored: Stored) -> None:
    ticket = await mm.create_ticket(tags=["mode:casual"], doubles={"skill": 1500.0}, strings={"language": "ja"})

    assert stored.names() == {"allTickets", ticket.id}
    assert (stored.type("allTickets"), stored.type(ticket.id)) == (b"set", b"string")
    assert stored.waiting() == {ticket.id}
    assert USUAL_S - 60 < stored.ttl_s(ticket.id) <= USUAL_S
    assert stored.ttl_s("allTickets") == -1
    message = messages_pb2.Ticket.FromString(stored.value(ticket.id))
    assert message == ticket.message
    assert list(message.persistent_field) == ["ttl"]


async def test_an_empty_ticket_is_written_as_minimatch_writes_it(mm: Matchmaking, stored: Stored) -> None:
    """Captured of minimatch: the id, fields for searching that are there and empty, the time to live, the time."""
    wanted = messages_pb2.Ticket()
    wanted.search_fields.SetInParent()
    ticket = await mm.create_from(wanted)
    theirs = (
        b'\n\x14%s"\x002@\n\x03ttl\x129\n.type.googleapis.com/google.protobuf.Int64Value\x12\x07\x08\x80\xe0\xa5\x96\xbb\x11'
        % ticket.id.encode()
    )

    body = stored.value(ticket.id)
    assert body.startswith(theirs)
    assert body[len(theirs) : len(theirs) + 1] == b":"
    assert messages_pb2.Ticket.FromString(body).create_time == ticket.message.create_time


async def test_taking_marks_them_with_whole_seconds_of_the_servers_time(
    mm: Matchmaking, stored: Stored, outside: Conversation
) -> None:
    ids = [(await mm.create_ticket()).id for _ in range(2)]
    before = int(outside.call("TIME")[0])
    await mm.shards[0].take(ids, "b", begins=True)
    after = int(outside.call("TIME")[0])

    assert stored.names() == {"allTickets", "proposed_ticket_ids", *ids}
    assert stored.type("proposed_ticket_ids") == b"zset"
    assert stored.pending().keys() == set(ids)
    assert all(before <= int(score) <= after for score in stored.pending().values())
    assert stored.waiting() == set(ids)


async def test_releasing_takes_only_the_mark_away(mm: Matchmaking, stored: Stored) -> None:
    ids = [(await mm.create_ticket()).id for _ in range(2)]
    await mm.shards[0].take(ids, "b", begins=True)

    await mm.release_tickets(ids[:1])
    assert stored.pending().keys() == set(ids[1:])
    await mm.release_all()

    assert stored.names() == {"allTickets", *ids}
    assert stored.waiting() == set(ids)


async def test_assigning_leaves_an_assignment_and_the_ticket_for_a_minute_and_nothing_else(
    mm: Matchmaking, stored: Stored
) -> None:
    first, second = [(await mm.create_ticket()).id for _ in range(2)]
    before = stored.value(first)
    backend = pairing(mm, lambda matches: [match.assigned("gameserver-123.example.com:7777") for match in matches])
    await backend.tick()

    assert stored.names() == {first, second, f"assign:{first}", f"assign:{second}"}
    assert stored.value(f"assign:{first}") == b"\n\x1fgameserver-123.example.com:7777"
    assert stored.value(f"assign:{first}") == stored.value(f"assign:{second}")
    assert stored.value(first) == before
    for name in (first, f"assign:{first}"):
        assert 0 < stored.ttl_s(name) <= 60
    assert stored.type(f"assign:{first}") == b"string"


async def test_extensions_of_an_assignment_are_there_as_they_were_given(mm: Matchmaking, stored: Stored) -> None:
    ticket = await mm.create_ticket()
    await mm.assign_tickets([Group([ticket.id], Assignment("a:1", {"sessionId": "session-xyz789"}))])

    message = messages_pb2.Assignment.FromString(stored.value(f"assign:{ticket.id}"))
    assert message.connection == "a:1"
    assert message.extensions["sessionId"].type_url == "type.googleapis.com/google.protobuf.StringValue"
    assert message.extensions["sessionId"].value == b"\n\x0esession-xyz789"


async def test_what_is_unmatched_is_as_it_was_before_the_tick(mm: Matchmaking, stored: Stored) -> None:
    ticket = await mm.create_ticket()

    await pairing(mm).tick()

    assert stored.names() == {"allTickets", ticket.id}
    assert stored.ttl_s(ticket.id) > 60


async def test_deleting_leaves_nothing_and_deindexing_the_ticket(mm: Matchmaking, stored: Stored) -> None:
    deleted, deindexed = [(await mm.create_ticket()).id for _ in range(2)]
    await mm.shards[0].take([deleted, deindexed], "b", begins=True)

    await mm.delete_ticket(deleted)
    assert stored.names() == {"allTickets", "proposed_ticket_ids", deindexed}
    await mm.deindex_ticket(deindexed)

    assert stored.names() == {deindexed}
    assert stored.ttl_s(deindexed) > 60


async def test_times_are_those_that_are_set(settings: Settings, outside: Conversation, prefix: str) -> None:
    stored = Stored(outside, prefix)
    other = msgspec.structs.replace(settings, match=MatchSettings(ticket_s=100, assigned_s=30))
    async with connect(other) as k:
        ids = [(await k.match.create_ticket()).id for _ in range(2)]
        assert 60 < stored.ttl_s(ids[0]) <= 100
        await pairing(k.match).tick()

    assert 0 < stored.ttl_s(ids[0]) <= 30
    assert 0 < stored.ttl_s(f"assign:{ids[0]}") <= 30


@pytest.mark.parametrize("prefix", ["", "mm1:", "mm1"])
async def test_a_prefix_stands_before_every_key_and_nothing_behind_it(
    fresh_server: ServerProcess, root: str, prefix: str
) -> None:
    roots = RootsSettings(system=root, coordination=root, match=prefix)
    async with connect(Settings(store=StoreSettings(url=fresh_server.url), roots=roots)) as k:
        ids = [(await k.match.create_ticket()).id for _ in range(3)]
        await pairing(k.match).tick()
        with fresh_server.connect() as conversation:
            left = [id_ for id_ in ids if id_ in Stored(conversation, prefix).waiting()]
            keys = {key.decode() for key in scan(conversation, "*") if not key.startswith(root.encode())}

    assigned = [id_ for id_ in ids if id_ not in left]
    names = {*ids, *(f"assign:{id_}" for id_ in assigned), "allTickets"}
    ours = {key for key in keys if key.startswith(f"{prefix}kizuna:")}
    assert (len(assigned), len(left)) == (2, 1)
    assert keys - ours == {prefix + name for name in names}
