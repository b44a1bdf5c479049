"""Answers that are lost, processes that die: every ticket is assigned once, or waits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec
import pytest
from tests.match.pairing import at_once, connections, pairing

from kizuna.app import Kizuna, connect
from kizuna.errors import OutcomeUnknown, StoreError
from kizuna.match import Assignment, Group, Match, Pool
from kizuna.match.giving_back import give_back
from kizuna.match.matchmaking import Matchmaking
from kizuna.service import running
from kizuna.settings import MatchSettings, ProcessesSettings, Settings, StoreSettings
from kizuna.testing import ChaosProxy, ServerProcess, eventually

MakeProxy = Callable[..., Awaitable[ChaosProxy]]


async def test_a_create_whose_answer_is_lost_is_repeated_and_counts_once(
    settings: Settings, proxy: MakeProxy, mm: Matchmaking
) -> None:
    between = await proxy()
    async with connect(msgspec.structs.replace(settings, store=StoreSettings(url=between.url))) as k:
        await k.match.create_ticket()
        between.drop_replies(1, then="cut")
        ticket = await k.match.create_ticket()

    assert await mm.count() == 2
    assert (await mm.get_ticket(ticket.id)).id == ticket.id


async def test_an_assignment_whose_answer_is_lost_is_known_to_have_been_made(
    settings: Settings, proxy: MakeProxy, mm: Matchmaking
) -> None:
    between = await proxy()
    tickets = [await mm.create_ticket() for _ in range(4)]

    def lose_the_answer(matches: Sequence[Match]) -> Iterable[Group]:
        between.drop_replies(1, then="cut")
        return at_once(matches)

    async with connect(msgspec.structs.replace(settings, store=StoreSettings(url=between.url))) as k:
        tick = await pairing(k.match, lose_the_answer).tick()

    assert tick.assigned == 4
    assert None not in await connections(mm, *(ticket.id for ticket in tickets))


async def test_what_was_taken_with_an_answer_that_was_lost_is_given_back_by_the_next_tick(
    settings: Settings, proxy: MakeProxy, mm: Matchmaking
) -> None:
    between = await proxy()
    tickets = [await mm.create_ticket() for _ in range(4)]
    async with connect(msgspec.structs.replace(settings, store=StoreSettings(url=between.url))) as k:
        backend = pairing(k.match)
        await backend.tick()
        again = [await mm.create_ticket() for _ in range(4)]
        shard = k.match.shards[0]
        indexed = shard.indexed

        async def lose_the_next(*, about: int | None = None) -> list[str]:
            ids = await indexed(about=about)
            between.drop_replies(1, then="cut")
            return ids

        shard.indexed = lose_the_next  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknown):
            await backend.tick()
        assert len(await mm.shards[0].pending()) == 4
        shard.indexed = indexed  # type: ignore[method-assign]
        assert (await backend.tick()).assigned == 4

    assert None not in await connections(mm, *(ticket.id for ticket in (*tickets, *again)))


async def test_a_tick_that_loses_the_server_gives_back_what_it_has_when_that_is_back(
    settings: Settings, proxy: MakeProxy, mm: Matchmaking
) -> None:
    between = await proxy()
    tickets = [await mm.create_ticket() for _ in range(2)]

    async def lose_the_server(matches: Sequence[Match]) -> Iterable[Group]:
        between.refuse()
        await between.cut()
        return at_once(matches)

    impatient = StoreSettings(url=between.url, timeout_s=2)
    async with connect(msgspec.structs.replace(settings, store=impatient)) as k:
        backend = pairing(k.match, lose_the_server)
        with pytest.raises(StoreError):
            await backend.tick()
        assert await mm.query_ids(Pool("all")) == []
        await between.accept()
        await k.match.shards[0].give_back(backend.name)

    assert await mm.query_ids(Pool("all")) == [ticket.id for ticket in tickets]


async def test_a_backend_that_stops_while_the_server_is_away_says_that_it_could_not_take_leave(
    settings: Settings, proxy: MakeProxy, caplog: pytest.LogCaptureFixture
) -> None:
    between = await proxy()
    impatient = StoreSettings(url=between.url, timeout_s=2.0)
    async with connect(msgspec.structs.replace(settings, store=impatient)) as k:
        backend = pairing(k.match)
        async with running(backend):
            between.refuse()
            await between.cut()

    [record] = [record for record in caplog.records if record.message == "backend left in silence"]
    assert vars(record)["backend"] == backend.name


async def test_pending_tickets_come_back_after_their_time(settings: Settings, server: ServerProcess) -> None:
    async with connect(msgspec.structs.replace(settings, match=MatchSettings(pending_s=4))) as k:
        mm = k.match
        ticket = await mm.create_ticket()
        await mm.shards[0].take([ticket.id], "gone", begins=True)
        assert await mm.query_ids(Pool("all")) == []

        await eventually(lambda: mm.query_ids(Pool("all")), within_s=30)
        assert (await mm.shards[0].take([ticket.id], "next", begins=True)).ids == [ticket.id]
        await mm.delete_ticket(ticket.id)


async def test_what_is_left_among_the_pending_goes_with_the_next_tick(
    settings: Settings, server: ServerProcess
) -> None:
    async with connect(settings) as k:
        shard = k.match.shards[0]
        server.call("ZADD", shard.proposed, 1, "long-gone")
        ticket = await k.match.create_ticket()
        await pairing(k.match).tick()

        assert server.call("EXISTS", shard.proposed) == 0
        await k.match.delete_ticket(ticket.id)


async def test_the_tickets_of_a_backend_that_is_killed_come_back_because_it_is_known_dead(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    quick = msgspec.structs.replace(settings, processes=ProcessesSettings(heartbeat_every_s=0.2, busy_s=1.0))
    async with connect(quick) as k:
        tickets = [await k.match.create_ticket() for _ in range(2)]
        command = (sys.executable, "-m", "tests.match.dying_backend", server.url, root)
        dying = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        try:
            assert dying.stdout is not None
            assert await dying.stdout.readline() == b"has two\n"
            assert len(await k.match.shards[0].pending()) == 2
        finally:
            dying.kill()
            await dying.wait()
        async with running(k.processes.membership()):
            await eventually(lambda: k.match.query_ids(Pool("all")), within_s=40)

        assert await k.match.query_ids(Pool("all")) == [ticket.id for ticket in tickets]
        assert await k.match.backends_report() == []
        assert server.call("KEYS", f"{root}.kizuna:held:*") == []


async def test_what_a_backend_with_a_name_of_its_own_has_taken_is_given_back_for_its_process(
    k: Kizuna, mm: Matchmaking
) -> None:
    first, second = [await mm.create_ticket() for _ in range(2)]
    backend = mm.backend(at_once, name="blue/green:1")
    await backend.tick()
    await mm.shards[0].take([first.id], backend.name, begins=True)
    await mm.shards[0].take([second.id], backend.name, begins=True, batch=1)
    await give_back(k.store, "somebody-else")
    assert await mm.query_ids(Pool("all")) == []
    await give_back(k.store, k.process)

    assert await mm.query_ids(Pool("all")) == [first.id, second.id]
    assert await k.store.call("HLEN", mm.shards[0].backends) == 0


async def test_giving_back_leaves_alone_what_somebody_else_has_taken_since(
    mm: Matchmaking, server: ServerProcess
) -> None:
    shard = mm.shards[0]
    mine, theirs = await mm.create_ticket(), await mm.create_ticket()
    await shard.take([mine.id, theirs.id], "dead", begins=True)
    server.call("ZADD", shard.proposed, "INCR", 1, theirs.id)

    assert await shard.give_back("dead") == 1
    assert list(await shard.pending()) == [theirs.id]
    assert await shard.give_back("dead") == 0


async def test_thousands_that_a_dead_backend_held_are_given_back(mm: Matchmaking) -> None:
    tickets = await asyncio.gather(*(mm.create_ticket() for _ in range(2_500)))
    shard = mm.shards[0]
    await shard.take([ticket.id for ticket in tickets], "dead", begins=True)

    assert await shard.give_back("dead") == 2_500
    assert await shard.pending() == {}


async def test_a_stopped_server_is_waited_for_and_everybody_is_matched(fresh_server: ServerProcess, root: str) -> None:
    settings = Settings(
        store=StoreSettings(url=fresh_server.url, reconnect_longest_s=0.1), match=MatchSettings(tick_every_s=0.1)
    )
    async with connect(settings) as k, running(pairing(k.match)):
        one, two = await k.match.create_ticket(), await k.match.create_ticket()
        await k.match.assignment(one.id, timeout_s=30)
        waiting = await k.match.create_ticket()
        waits = asyncio.create_task(k.match.assignment(waiting.id, timeout_s=50))
        await asyncio.to_thread(fresh_server.kill)
        await asyncio.to_thread(fresh_server.start)

        async def creates() -> bool:
            try:
                await k.match.create_ticket()
            except StoreError:
                return False
            return True

        await eventually(creates, within_s=30)
        assert await waits
    del two


async def test_somebody_who_was_away_for_too_long_assigns_nobody_who_plays_already(settings: Settings) -> None:
    async with connect(msgspec.structs.replace(settings, match=MatchSettings(pending_s=4))) as k:
        mm = k.match
        one, two = await mm.create_ticket(), await mm.create_ticket()

        async def sleeps(matches: Sequence[Match]) -> Iterable[Group]:
            await eventually(lambda: mm.query_ids(Pool("all")), within_s=30)
            assert (await pairing(mm).tick()).assigned == 2
            return [match.assigned("late:1") for match in matches]

        tick = await pairing(mm, sleeps).tick()

        assert tick.assigned == 0
        assert "late:1" not in await connections(mm, one.id, two.id)
        assert await mm.assign_tickets([Group([one.id], Assignment("later:1"))]) == {one.id: "assigned"}
