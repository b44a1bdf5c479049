"""Tickets of programs that know the data only, matched by our backend."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.match.outsiders.specification import ASSIGNED_S, TICKET_S, RawFrontend, encode_ticket, new_id
from tests.match.pairing import connections, pairing

from kizuna.app import connect
from kizuna.errors import TicketMissing
from kizuna.match import Pool, Profile
from kizuna.match.matchmaking import Matchmaking
from kizuna.match.xids import made_at
from kizuna.service import running
from kizuna.settings import MatchSettings, Settings
from kizuna.testing import eventually
from kizuna.testing.resp import Conversation


async def test_their_tickets_are_matched_with_each_other_and_with_ours(mm: Matchmaking, frontend: RawFrontend) -> None:
    theirs = [frontend.create() for _ in range(3)]
    ours = await mm.create_ticket()

    tick = await pairing(mm).tick()

    assert (tick.fetched, tick.assigned) == (4, 4)
    told = [frontend.assignment(id_) for id_ in (*theirs, ours.id)]
    assert all(told)
    assert len(set(told)) == 2
    assert await connections(mm, *theirs, ours.id) == told


async def test_what_they_wrote_is_left_as_they_wrote_it_and_ends_when_it_should(
    mm: Matchmaking, frontend: RawFrontend, outside: Conversation, prefix: str
) -> None:
    ids = [frontend.create(tags=["a"]), frontend.create(tags=["b"])]
    before = [outside.call("GET", prefix + id_) for id_ in ids]

    await pairing(mm).tick()

    assert [outside.call("GET", prefix + id_) for id_ in ids] == before
    assert all(0 < outside.call("TTL", prefix + id_) <= ASSIGNED_S for id_ in ids)
    assert all(0 < outside.call("TTL", f"{prefix}assign:{id_}") <= ASSIGNED_S for id_ in ids)
    assert outside.call("EXISTS", f"{prefix}allTickets", f"{prefix}proposed_ticket_ids") == 0


async def test_a_backend_hears_of_their_tickets_at_once(settings: Settings, frontend: RawFrontend) -> None:
    # Nothing but the announcement explains a match before this is over.
    patient = msgspec.structs.replace(settings, match=MatchSettings(tick_every_s=3_600.0))
    async with connect(patient) as k, running(pairing(k.match)):
        await eventually(lambda: k.match.backends_report(), within_s=20)
        ids = [frontend.create() for _ in range(2)]

        await eventually(lambda: all(frontend.assignment(id_) for id_ in ids), within_s=20)


async def test_who_of_us_waits_for_their_ticket_is_told(mm: Matchmaking, frontend: RawFrontend) -> None:
    id_ = frontend.create()
    waiting = asyncio.create_task(mm.assignment(id_, timeout_s=20))
    await eventually(lambda: mm.watchers.number == 1)
    ours = await mm.create_ticket()
    await pairing(mm).tick()

    assert (await waiting).connection == frontend.assignment(id_) == frontend.assignment(ours.id)


async def test_a_ticket_that_they_delete_is_not_matched_and_who_waits_for_it_is_told(
    settings: Settings, frontend: RawFrontend
) -> None:
    often = msgspec.structs.replace(settings, match=MatchSettings(look_every_s=0.05))
    async with connect(often) as k:
        id_, other = frontend.create(), frontend.create()
        waiting = asyncio.create_task(k.match.assignment(id_, timeout_s=20))
        await eventually(lambda: k.match.watchers.number == 1)
        frontend.delete(id_)

        with pytest.raises(TicketMissing):
            await waiting
        tick = await pairing(k.match).tick()
        assert (tick.fetched, tick.assigned) == (1, 0)
        assert frontend.assignment(other) is None


async def test_their_tickets_are_in_the_pools_that_their_fields_say(mm: Matchmaking, frontend: RawFrontend) -> None:
    bronze, silver = frontend.create(tags=["bronze"]), frontend.create(tags=["silver"])
    profile = Profile("ranked", [Pool("bronze", tags=["bronze"]), Pool("silver", tags=["silver"])])

    assert (await pairing(mm, profile=profile).tick()).assigned == 0
    second = frontend.create(tags=["silver"])
    await pairing(mm, profile=profile).tick()

    assert frontend.assignment(silver) == frontend.assignment(second) is not None
    assert frontend.assignment(bronze) is None


@pytest.mark.parametrize("ids", [("test1", "test2"), ("cko1234abc", "cko5678def"), ("ステージ", "é")])
async def test_ids_of_another_kind_are_as_good(mm: Matchmaking, frontend: RawFrontend, ids: tuple[str, str]) -> None:
    for id_ in ids:
        frontend.create(id_)

    await pairing(mm).tick()

    assert frontend.assignment(ids[0]) == frontend.assignment(ids[1]) is not None


async def test_a_ticket_that_is_in_the_index_and_not_yet_written_is_not_lost(
    mm: Matchmaking, frontend: RawFrontend, outside: Conversation, prefix: str
) -> None:
    """The specification has them add it to the index first: a backend that hears of it at once may come in between."""
    first, second = new_id(), frontend.create()
    backend = pairing(mm)
    outside.call("SADD", f"{prefix}allTickets", first)

    assert (await backend.tick()).fetched == 1
    assert await mm.query_ids(Pool("everyone")) == [second]
    outside.call("SET", prefix + first, encode_ticket(first), "EX", TICKET_S)
    assert (await backend.tick()).assigned == 2

    assert frontend.assignment(first) == frontend.assignment(second) is not None


async def test_an_index_without_its_ticket_holds_nobody_up_and_is_tidied_after_a_while(
    mm: Matchmaking, frontend: RawFrontend, outside: Conversation, prefix: str
) -> None:
    gone = new_id()
    outside.call("SADD", f"{prefix}allTickets", gone)
    ids = [frontend.create() for _ in range(2)]
    backend = pairing(mm)

    await backend.tick()
    assert all(frontend.assignment(id_) for id_ in ids)

    async def is_tidied() -> bool:
        await backend.tick()
        return bool(outside.call("EXISTS", f"{prefix}allTickets", f"{prefix}proposed_ticket_ids") == 0)

    await eventually(is_tidied, within_s=20)


async def test_the_ids_that_we_make_are_those_that_they_make(mm: Matchmaking, outside: Conversation) -> None:
    ticket = await mm.create_ticket()
    now_s = int(outside.call("TIME")[0])

    for id_ in (ticket.id, new_id()):
        seconds = made_at(id_)
        assert seconds is not None
        assert abs(seconds - now_s) < 120


async def test_their_reading_of_our_ticket(mm: Matchmaking, outside: Conversation, prefix: str) -> None:
    ticket = await mm.create_ticket(tags=["x"])
    body = outside.call("GET", prefix + ticket.id)

    assert body.startswith(b"\n\x14" + ticket.id.encode() + b'"\x03\x1a\x01x')
    assert (
        b"\n\x03ttl\x129\n.type.googleapis.com/google.protobuf.Int64Value\x12\x07\x08\x80\xe0\xa5\x96\xbb\x11" in body
    )
    assert 0 < outside.call("TTL", prefix + ticket.id) <= TICKET_S
    assert outside.call("SMEMBERS", f"{prefix}allTickets") == [ticket.id.encode()]
