"""Tickets that ended while nobody matched or asked do not stay in the index."""

from __future__ import annotations

from kizuna.match.matchmaking import Matchmaking
from kizuna.match.tidying import Tidying
from kizuna.match.xids import make_xid
from kizuna.service import running
from kizuna.testing import ServerProcess, assert_starts_and_stops, eventually

# Of the first hours of 1970.
LONG_AGO = [f"0000{number:015d}0" for number in range(300)]


async def test_what_ended_long_ago_leaves_the_index_and_nothing_else_does(
    mm: Matchmaking, server: ServerProcess
) -> None:
    waits, is_matched = (await mm.create_ticket()).id, (await mm.create_ticket()).id
    # Somebody enters a ticket first, and writes it a moment later; what others call their tickets tells no time.
    about_to_be_written, of_others = make_xid(), "ticket-7"
    index, pending = mm.shards[0].all_tickets, mm.shards[0].proposed
    server.call("SADD", index, *LONG_AGO, about_to_be_written, of_others)
    await mm.shards[0].take([is_matched, *LONG_AGO[:3]], "a", begins=True)
    assert server.call("ZCARD", pending) == 4

    assert await Tidying(mm.shards).tidy() == 300

    assert set(await mm.shards[0].indexed()) == {waits, is_matched, about_to_be_written, of_others}
    assert server.call("ZRANGE", pending, 0, -1) == [is_matched.encode()]


async def test_it_is_done_for_as_long_as_a_frontend_runs(mm: Matchmaking, server: ServerProcess) -> None:
    async with running(Tidying(mm.shards, every_s=0.01)):
        server.call("SADD", mm.shards[0].all_tickets, *LONG_AGO)

        await eventually(lambda: _is_empty(mm), within_s=20)


async def test_it_starts_and_stops_as_often_as_it_is_told_to(mm: Matchmaking) -> None:
    await assert_starts_and_stops(lambda: Tidying(mm.shards))


async def _is_empty(mm: Matchmaking) -> bool:
    return await mm.count() == 0
