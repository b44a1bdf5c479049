"""Several FetchMatches at once, and callers that do not wait for the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from tests.match.director.directing import OpenMatch, match_of, matches_of, open_match, same
from tests.match.director.functions import by_profile, never_ending, proposing

from kizuna.match.openmatch import messages_pb2
from kizuna.settings import Settings
from kizuna.testing import eventually


async def keep_all(matches: list[messages_pb2.Match]) -> AsyncIterator[str]:
    for match in matches:
        yield match.match_id


# several at once


async def test_calls_of_one_cycle_are_decided_together_and_each_gets_its_own(settings: Settings) -> None:
    seen: list[set[str]] = []

    async def evaluate(matches: list[messages_pb2.Match]) -> AsyncIterator[str]:
        seen.append({match.match_id for match in matches})
        for match in matches:
            yield match.match_id

    async with open_match(settings, evaluate=evaluate) as om:
        one, other = await om.tickets(2)
        first, second = match_of("1", one), match_of("2", other)
        om.functions.function = by_profile(one=proposing(first), two=proposing(second))

        streams = await om.fetch_together("one", "two")

        assert [same(match, first) for match in await matches_of(streams[0])] == [True]
        assert [same(match, second) for match in await matches_of(streams[1])] == [True]
        assert seen == [set(), {"1", "2"}]


async def test_a_cycle_waits_for_others_for_the_whole_window(settings: Settings) -> None:
    async with open_match(settings, registration_s=0.3) as om:
        began = time.monotonic()

        assert await om.fetched(proposing()) == []

        assert time.monotonic() - began >= 0.3


async def test_a_caller_that_does_not_read_keeps_nobody_waiting(om: OpenMatch) -> None:
    tickets = await om.tickets(4)
    om.functions.function = om.pairs_of_all_who_wait()
    slow = om.fetch("one")
    await eventually(om.nobody_waits, within_s=20)
    late = await om.tickets(2)

    quick = await matches_of(om.fetch("two"))

    assert [{ticket.id for ticket in match.tickets} for match in quick] == [{ticket.id for ticket in late}]
    fetched = [ticket.id for match in await matches_of(slow) for ticket in match.tickets]
    assert sorted(fetched) == sorted(ticket.id for ticket in tickets)


# callers that leave


async def test_the_function_of_a_caller_that_left_is_ended(om: OpenMatch) -> None:
    om.functions.function = never_ending(match_of("1", await om.ticket()))
    stream = om.fetch()
    await eventually(lambda: om.functions.runs == 1, within_s=20)

    stream.cancel()

    await eventually(lambda: om.functions.cancelled == 1, within_s=20)
    await eventually(lambda: om.director.under_way == 0, within_s=20)


async def test_an_evaluator_that_works_for_nobody_is_ended(settings: Settings) -> None:
    asked = asyncio.Event()

    async def evaluate(_: list[messages_pb2.Match]) -> AsyncIterator[str]:
        asked.set()
        await asyncio.Event().wait()
        yield "never"

    async with open_match(settings, evaluate=evaluate) as om:
        stream = om.fetch()
        await asyncio.wait_for(asked.wait(), 20)

        stream.cancel()

        await eventually(lambda: om.functions.cancelled == 1, within_s=20)
        om.functions.evaluate = keep_all
        match = match_of("1", await om.ticket())
        assert [same(one, match) for one in await om.fetched(proposing(match))] == [True]


async def test_others_of_the_cycle_do_not_notice_a_caller_that_left(om: OpenMatch) -> None:
    ticket = await om.ticket()
    om.functions.function = by_profile(
        gone=never_ending(match_of("1", ticket, score=9)), stays=proposing(match_of("2", ticket))
    )

    gone, stays = await om.fetch_together("gone", "stays")
    await eventually(lambda: om.functions.runs == 3, within_s=20)
    gone.cancel()

    assert [match.match_id for match in await matches_of(stays)] == ["2"]
