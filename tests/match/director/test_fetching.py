"""FetchMatches, as a director of Open Match uses it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc import StatusCode
from tests.match.director.directing import OpenMatch, match_of, matches_of, open_match, refusal, same
from tests.match.director.functions import by_profile, failing, never_ending, proposing

from kizuna.match.openmatch import backend_pb2, messages_pb2
from kizuna.settings import Settings
from kizuna.testing import eventually

# what is fetched


async def test_a_match_of_two_tickets_arrives_as_it_was_proposed(settings: Settings) -> None:
    seen: list[list[messages_pb2.Match]] = []

    async def evaluate(matches: list[messages_pb2.Match]) -> AsyncIterator[str]:
        seen.append(matches)
        yield "1"

    async with open_match(settings, evaluate=evaluate) as om:
        match = match_of("1", *await om.tickets(2), match_function="f", allocate_gameserver=True)

        fetched = await om.fetched(proposing(match))

        assert len(fetched) == 1
        assert same(fetched[0], match)
        assert [same(one, match) for matches in seen for one in matches] == [True]
        assert await om.waiting() == set()


async def test_fields_that_we_have_no_type_for_come_through_unchanged(om: OpenMatch) -> None:
    match = match_of("1", await om.ticket(), score=3.5)
    match.extensions["odd"].type_url = "type.googleapis.com/somebody.Elses"
    match.extensions["odd"].value = b"\x08\x01"

    fetched = await om.fetched(proposing(match))

    assert [same(one, match) for one in fetched] == [True]


async def test_no_matches_are_an_empty_stream(om: OpenMatch) -> None:
    assert await om.fetched(proposing()) == []


async def test_a_match_without_tickets_is_a_match(om: OpenMatch) -> None:
    fetched = await om.fetched(proposing(match_of("1")))

    assert [match.match_id for match in fetched] == ["1"]


async def test_matches_come_one_by_one(om: OpenMatch) -> None:
    one, other = await om.tickets(2)
    om.functions.function = proposing(match_of("1", one), match_of("2", other))
    stream = om.fetch()

    assert (await stream.read()).match.match_id == "1"
    assert (await stream.read()).match.match_id == "2"
    assert await stream.read() is grpc.aio.EOF


async def test_a_ticket_that_somebody_else_has_taken_is_in_no_match(om: OpenMatch) -> None:
    one, other, third = await om.tickets(3)
    await om.fetched(proposing(match_of("1", one)))

    fetched = await om.fetched(proposing(match_of("2", one, other), match_of("3", third)))

    assert [match.match_id for match in fetched] == ["3"]
    assert await om.waiting() == {other.id}


async def test_a_ticket_that_is_gone_is_in_no_match(om: OpenMatch) -> None:
    one, other = await om.tickets(2)
    await om.mm.delete_ticket(one.id)
    nobodys = [messages_pb2.Ticket(id="nobody"), messages_pb2.Ticket(id="no body"), messages_pb2.Ticket()]

    fetched = await om.fetched(
        proposing(match_of("1", one), match_of("2", other), *(match_of(f"n{n}", t) for n, t in enumerate(nobodys)))
    )

    assert [match.match_id for match in fetched] == ["2"]


# what is wrong with a request


@pytest.mark.parametrize("missing", ["config", "profile"])
async def test_a_request_without_a_config_or_a_profile_is_refused(om: OpenMatch, missing: str) -> None:
    request = backend_pb2.FetchMatchesRequest(config=om.functions.config, profile=messages_pb2.MatchProfile())
    request.ClearField(missing)

    refused = await refusal(matches_of(om.backend.FetchMatches(request)))

    assert refused == (StatusCode.INVALID_ARGUMENT, f".{missing} is required")
    assert om.functions.runs == 0


@pytest.mark.parametrize(
    "config",
    [
        {"host": "", "port": 50502},
        {"host": "localhost", "port": 0},
        {"host": "localhost", "port": 70000},
        {"host": "a host", "port": 50502},
        {"host": "unix:///tmp/x", "port": 50502},
        {"host": "localhost", "port": 50502, "type": 7},
    ],
)
async def test_what_cannot_be_the_place_of_a_function_is_refused(om: OpenMatch, config: dict[str, object]) -> None:
    code, _ = await refusal(matches_of(om.fetch(config=backend_pb2.FunctionConfig(**config))))  # type: ignore[arg-type]

    assert code is StatusCode.INVALID_ARGUMENT


# functions that fail


async def test_what_a_function_says_when_it_fails_reaches_the_caller(om: OpenMatch) -> None:
    code, text = await refusal(om.fetched(failing()))

    assert code is StatusCode.UNKNOWN
    assert "my custom error" in text
    assert om.functions.address in text


async def test_what_a_failing_function_had_proposed_does_not_count(om: OpenMatch) -> None:
    ticket = await om.ticket()
    om.functions.function = by_profile(
        bad=failing(match_of("1", ticket, score=9)), good=proposing(match_of("2", ticket, score=1))
    )

    bad, good = await om.fetch_together("bad", "good")

    assert "my custom error" in (await refusal(matches_of(bad)))[1]
    assert [match.match_id for match in await matches_of(good)] == ["2"]


async def test_a_function_that_uses_an_id_twice_fails_alone(om: OpenMatch) -> None:
    one, other = await om.tickets(2)
    om.functions.function = by_profile(
        error=proposing(match_of("1", one), match_of("1", other)), success=proposing(match_of("3", other))
    )

    error, success = await om.fetch_together("error", "success")

    code, text = await refusal(matches_of(error))
    assert code is StatusCode.UNKNOWN
    assert 'MatchMakingFunction returned same match_id twice: "1"' in text
    assert [match.match_id for match in await matches_of(success)] == ["3"]
    assert await om.waiting() == {one.id}


async def test_an_id_that_two_functions_use_fails_all_of_the_cycle_and_takes_nothing(om: OpenMatch) -> None:
    one, other, third = await om.tickets(3)
    om.functions.function = by_profile(
        a=proposing(match_of("1", one)), b=proposing(match_of("1", other)), c=proposing(match_of("3", third))
    )

    for stream in await om.fetch_together("a", "b", "c"):
        code, text = await refusal(matches_of(stream))
        assert code is StatusCode.UNKNOWN
        assert 'multiple match functions used same match_id: "1"' in text
    assert await om.waiting() == {one.id, other.id, third.id}


async def test_a_function_that_takes_too_long_is_ended_and_its_caller_told(settings: Settings) -> None:
    async with open_match(settings, registration_s=0.05, collection_s=0.2) as om:
        began = time.monotonic()

        code, text = await refusal(om.fetched(never_ending()))

        assert time.monotonic() - began >= 0.2
        assert code is StatusCode.UNKNOWN
        assert "context canceled" in text
        assert "match.collection_s" in text
        await eventually(lambda: om.functions.cancelled == 1, within_s=20)
