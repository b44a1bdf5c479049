"""Matches that are told while functions still run: an evaluator that has seen enough need not wait for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from tests.match.director.directing import match_of, matches_of, open_match, refusal
from tests.match.director.functions import Function, by_profile, failing, never_ending, proposing

from kizuna.match.openmatch import messages_pb2
from kizuna.settings import Settings
from kizuna.testing import eventually


async def keep_at_once(matches: AsyncIterator[messages_pb2.Match]) -> AsyncIterator[str]:
    async for match in matches:
        yield match.match_id


def pausing(goes_on: asyncio.Event, first: messages_pb2.Match, then: Function) -> Function:
    """Proposes one, and the rest when it is told to."""

    async def function(profile: messages_pb2.MatchProfile) -> AsyncIterator[messages_pb2.Match]:
        yield first
        await goes_on.wait()
        async for match in then(profile):
            yield match

    return function


async def next_id(stream: Any) -> str:
    """Nothing at the end."""
    response = await asyncio.wait_for(stream.read(), 60)
    return "" if response is grpc.aio.EOF else str(response.match.match_id)


async def test_a_match_is_told_while_its_function_still_looks_for_others(settings: Settings) -> None:
    goes_on = asyncio.Event()
    async with open_match(settings, judge=keep_at_once) as om:
        one, other = await om.tickets(2)
        om.functions.function = pausing(goes_on, match_of("1", one), proposing(match_of("2", other)))

        stream = om.fetch()
        assert await next_id(stream) == "1"
        assert await om.waiting() == {other.id}
        goes_on.set()

        assert [await next_id(stream), await next_id(stream)] == ["2", ""]


async def test_the_matches_of_a_fast_function_do_not_wait_for_a_slow_one(settings: Settings) -> None:
    async with open_match(settings, judge=keep_at_once) as om:
        one, other = await om.tickets(2)
        om.functions.function = by_profile(fast=proposing(match_of("1", one)), slow=never_ending(match_of("2", other)))

        fast, slow = await om.fetch_together("fast", "slow")

        assert await next_id(fast) == "1"
        assert await next_id(slow) == "2"
        slow.cancel()
        assert not await next_id(fast)


async def test_a_ticket_that_was_told_of_is_in_no_later_match(settings: Settings) -> None:
    goes_on = asyncio.Event()
    async with open_match(settings, judge=keep_at_once) as om:
        one, other = await om.tickets(2)
        again = proposing(match_of("2", one, other, score=9))
        om.functions.function = pausing(goes_on, match_of("1", one), again)

        stream = om.fetch()
        assert await next_id(stream) == "1"
        goes_on.set()

        assert not await next_id(stream)
        assert await om.waiting() == {other.id}


async def test_a_function_that_fails_later_fails_its_call_behind_what_was_told(settings: Settings) -> None:
    goes_on = asyncio.Event()
    async with open_match(settings, judge=keep_at_once) as om:
        om.functions.function = pausing(goes_on, match_of("1", await om.ticket()), failing())

        stream = om.fetch()
        assert await next_id(stream) == "1"
        goes_on.set()

        code, text = await refusal(next_id(stream))
        assert code is StatusCode.UNKNOWN
        assert "my custom error" in text


async def test_an_evaluator_that_fails_later_fails_the_call_behind_what_was_told(settings: Settings) -> None:
    goes_on = asyncio.Event()

    async def keep_one(matches: AsyncIterator[messages_pb2.Match]) -> AsyncIterator[str]:
        yield (await anext(matches)).match_id
        await goes_on.wait()
        raise ValueError("I am tired")

    async with open_match(settings, judge=keep_one) as om:
        one, other = await om.tickets(2)
        om.functions.function = proposing(match_of("1", one), match_of("2", other))

        stream = om.fetch()
        assert await next_id(stream) == "1"
        goes_on.set()

        code, text = await refusal(next_id(stream))
        assert code is StatusCode.UNKNOWN
        assert "I am tired" in text
        assert await om.waiting() == {other.id}


@pytest.mark.parametrize("score", [1.0, 9.0])
async def test_our_own_evaluator_waits_for_all_for_a_better_match_may_follow(settings: Settings, score: float) -> None:
    goes_on = asyncio.Event()
    async with open_match(settings) as om:
        ticket = await om.ticket()
        om.functions.function = pausing(
            goes_on, match_of("5", ticket, score=5.0), proposing(match_of("late", ticket, score=score))
        )

        fetching = asyncio.ensure_future(matches_of(om.fetch()))
        await eventually(lambda: om.functions.runs == 1, within_s=20)
        assert await om.waiting() == {ticket.id}
        goes_on.set()

        assert [match.match_id for match in await fetching] == ["late" if score > 5 else "5"]
