"""Who decides which of the proposed matches stand, and what happens when he cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from grpc import StatusCode
from tests.match.director.directing import OpenMatch, match_of, matches_of, open_match, refusal, same
from tests.match.director.functions import by_profile, proposing

from kizuna.match.openmatch import messages_pb2
from kizuna.settings import Settings
from kizuna.testing import eventually


async def keep_all(matches: list[messages_pb2.Match]) -> AsyncIterator[str]:
    for match in matches:
        yield match.match_id


# evaluators


async def test_an_evaluator_that_keeps_what_nobody_proposed_fails_the_call(settings: Settings) -> None:
    async def evaluate(_: list[messages_pb2.Match]) -> AsyncIterator[str]:
        yield "1"

    async with open_match(settings, evaluate=evaluate) as om:
        code, text = await refusal(om.fetched(proposing()))

        assert code is StatusCode.UNKNOWN
        assert 'evaluator returned match_id "1" which does not correspond to its any match in its input' in text


async def test_an_evaluator_that_keeps_a_match_twice_fails_the_call_and_it_is_told_once_at_most(
    settings: Settings,
) -> None:
    async def evaluate(_: list[messages_pb2.Match]) -> AsyncIterator[str]:
        yield "1"
        yield "1"

    async with open_match(settings, evaluate=evaluate) as om:
        om.functions.function = proposing(match_of("1", *await om.tickets(2)))
        stream, fetched = om.fetch(), 0

        async def fetch() -> None:
            nonlocal fetched
            async for _ in stream:
                fetched += 1

        code, text = await refusal(fetch())

        assert code is StatusCode.UNKNOWN
        assert 'evaluator returned same match_id twice: "1"' in text
        assert fetched <= 1


async def test_what_an_evaluator_says_when_it_fails_reaches_all_callers_of_the_cycle(settings: Settings) -> None:
    async def evaluate(matches: list[messages_pb2.Match]) -> AsyncIterator[str]:
        if matches:
            raise ValueError("my custom error")
        return
        yield

    async with open_match(settings, evaluate=evaluate) as om:
        ticket = await om.ticket()
        om.functions.function = by_profile(a=proposing(match_of("1", ticket)), b=proposing())

        for stream in await om.fetch_together("a", "b"):
            code, text = await refusal(matches_of(stream))
            assert code is StatusCode.UNKNOWN
            assert "my custom error" in text
        assert await om.waiting() == {ticket.id}


async def test_an_evaluator_that_is_not_there_fails_the_call_and_nothing_is_taken(settings: Settings) -> None:
    async with open_match(settings, evaluator_at="127.0.0.1:1") as om:
        ticket = await om.ticket()

        code, text = await refusal(om.fetched(proposing(match_of("1", ticket))))

        assert code is StatusCode.UNKNOWN
        assert "127.0.0.1:1" in text
        assert await om.waiting() == {ticket.id}


async def test_an_evaluator_that_takes_too_long_is_ended(settings: Settings) -> None:
    async def evaluate(_: list[messages_pb2.Match]) -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield "never"

    async with open_match(settings, evaluate=evaluate, collection_s=0.3) as om:
        code, text = await refusal(om.fetched(proposing()))

        assert code is StatusCode.UNKNOWN
        assert "took longer than 0.3s" in text
        await eventually(lambda: om.functions.cancelled == 1, within_s=20)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_python_function_can_decide(settings: Settings, is_async: bool) -> None:
    async def last_async(matches: object) -> list[str]:
        return last(matches)

    def last(matches: object) -> list[str]:
        return [match.id for match in list(matches)[-1:]]  # type: ignore[call-overload]

    async with open_match(settings, last_async if is_async else last) as om:
        one, other = await om.tickets(2)

        fetched = await om.fetched(proposing(match_of("1", one, score=9), match_of("2", other, score=1)))

        assert [match.match_id for match in fetched] == ["2"]


async def test_a_python_function_that_fails_is_told_of(settings: Settings) -> None:
    def broken(_: object) -> list[str]:
        raise ZeroDivisionError("oh")

    async with open_match(settings, broken) as om:
        code, text = await refusal(om.fetched(proposing(match_of("1", await om.ticket()))))

        assert code is StatusCode.UNKNOWN
        assert "ZeroDivisionError: oh" in text


async def test_a_python_function_that_waited_for_something_cancelled_has_failed_and_the_director_goes_on(
    settings: Settings,
) -> None:
    async def cancelled(_: object) -> list[str]:
        raise asyncio.CancelledError

    async with open_match(settings, cancelled) as om:
        code, text = await refusal(om.fetched(proposing(match_of("1", await om.ticket()))))

        assert code is StatusCode.UNKNOWN
        assert "what it waited for was cancelled" in text


# the evaluator that there is


async def test_the_best_score_wins_and_matches_without_one_come_last(om: OpenMatch) -> None:
    one, other, third = await om.tickets(3)

    fetched = await om.fetched(
        proposing(
            match_of("none", one),
            match_of("low", one, other, score=-5),
            match_of("high", other, score=7),
            match_of("free", third),
        )
    )

    assert {match.match_id for match in fetched} == {"high", "none", "free"}


async def test_a_score_that_cannot_be_read_rejects_its_match_alone(om: OpenMatch) -> None:
    one, other = await om.tickets(2)
    unreadable = match_of("1", one)
    unreadable.extensions["evaluation_input"].type_url = "type.googleapis.com/google.protobuf.StringValue"
    damaged = match_of("2", one)
    damaged.extensions["evaluation_input"].type_url = "type.googleapis.com/openmatch.DefaultEvaluationCriteria"
    damaged.extensions["evaluation_input"].value = b"\xff"

    fetched = await om.fetched(proposing(unreadable, damaged, match_of("3", other)))

    assert [match.match_id for match in fetched] == ["3"]
    assert await om.waiting() == {one.id}


async def test_a_score_that_we_cannot_read_is_the_business_of_another_evaluator(settings: Settings) -> None:
    async with open_match(settings, evaluate=keep_all) as om:
        match = match_of("1", await om.ticket())
        match.extensions["evaluation_input"].type_url = "type.googleapis.com/somebody.ElsesCriteria"

        fetched = await om.fetched(proposing(match))

        assert [same(one, match) for one in fetched] == [True]


async def test_a_backfill_is_in_one_match_only(om: OpenMatch) -> None:
    one, other = await om.tickets(2)
    backfill = (await om.mm.create_backfill()).message

    fetched = await om.fetched(
        proposing(
            match_of("1", one, score=1, backfill=backfill),
            match_of("2", other, score=2, backfill=backfill),
        )
    )

    assert [match.match_id for match in fetched] == ["2"]
    assert await om.waiting() == {one.id}


async def test_a_match_that_has_one_ticket_twice_does_not_stand(om: OpenMatch) -> None:
    one, other = await om.tickets(2)
    backfill = (await om.mm.create_backfill()).message

    fetched = await om.fetched(
        proposing(match_of("1", one, one), match_of("2", one, one, backfill=backfill), match_of("3", other))
    )

    assert [match.match_id for match in fetched] == ["3"]
    assert await om.waiting() == {one.id}
