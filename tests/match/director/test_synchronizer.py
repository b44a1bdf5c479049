"""What becomes of matches that nobody fetches, and of calls when the director stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from grpc import StatusCode
from tests.match.director.directing import match_of

from kizuna import connect
from kizuna.errors import FunctionFailed
from kizuna.match import Pool
from kizuna.match.director.evaluators import Judge, LocalJudge
from kizuna.match.director.proposals import Proposal
from kizuna.match.director.synchronizer import Synchronizer
from kizuna.match.matches import best_first
from kizuna.match.matchmaking import Matchmaking
from kizuna.match.openmatch import messages_pb2
from kizuna.match.serving.statuses import BadCall
from kizuna.settings import Settings
from kizuna.testing import eventually

ANY = messages_pb2.MatchProfile(name="any")
EVERYONE = Pool("everyone")


class Proposing:
    """A function that proposes in one turn of the loop, and then ends, or not."""

    address = "here:1"

    def __init__(self, *matches: messages_pb2.Match, ends: bool = True) -> None:
        self._matches, self._ends = matches, ends
        self.has_begun = asyncio.Event()

    async def run(self, _: messages_pb2.MatchProfile) -> AsyncGenerator[messages_pb2.Match, None]:
        for match in self._matches:
            yield match
        self.has_begun.set()
        if not self._ends:
            await asyncio.Event().wait()


@asynccontextmanager
async def synchronizing(
    mm: Matchmaking, judge: Judge | None = None, *, collection_s: float = 20.0
) -> AsyncIterator[Synchronizer]:
    judge = judge or LocalJudge(best_first)
    synchronizer = Synchronizer(mm, judge, registration_s=0.0, collection_s=collection_s)
    yield synchronizer
    await synchronizer.aclose()


@pytest.fixture
async def mm(settings: Settings) -> AsyncIterator[Matchmaking]:
    async with connect(settings) as k:
        yield k.match


async def singles(mm: Matchmaking, how_many: int) -> list[messages_pb2.Match]:
    """A match of each of so many new tickets."""
    tickets = [(await mm.create_ticket()).message for _ in range(how_many)]
    return [match_of(ticket.id, ticket) for ticket in tickets]


async def test_matches_that_are_not_fetched_are_given_back(mm: Matchmaking) -> None:
    matches = await singles(mm, 5)
    async with synchronizing(mm) as synchronizer:
        async with aclosing(synchronizer.fetch(Proposing(*matches), ANY)) as fetched:
            first, second = await anext(fetched), await anext(fetched)
            assert await mm.query_ids(EVERYONE) == []

        # Whether the second was read, nobody knows: it is safe to give it back, for it can be assigned once only.
        left = {match.match_id for match in matches} - {first.match_id}
        assert second.match_id in left
        await eventually(lambda: waiting_are(mm, left), within_s=20)


class KeepsAtOnce:
    name = "keeps at once"

    async def ids_of(self, proposals: AsyncIterator[Proposal]) -> AsyncGenerator[str, None]:
        async for proposal in proposals:
            yield proposal.match.id


async def test_nor_are_those_that_were_taken_while_their_function_still_ran(mm: Matchmaking) -> None:
    matches = await singles(mm, 3)
    async with synchronizing(mm, KeepsAtOnce()) as synchronizer:
        async with aclosing(synchronizer.fetch(Proposing(*matches, ends=False), ANY)) as fetched:
            first, _ = await anext(fetched), await anext(fetched)
            await eventually(lambda: waiting_are(mm, set()), within_s=20)

        await eventually(lambda: waiting_are(mm, {match.match_id for match in matches} - {first.match_id}), within_s=20)


async def test_matches_are_given_back_when_the_caller_leaves_while_they_are_taken(mm: Matchmaking) -> None:
    [match] = await singles(mm, 1)
    async with synchronizing(mm) as synchronizer:
        taking, goes_on = asyncio.Event(), asyncio.Event()
        propose = synchronizer.take

        async def take(kept: object) -> object:
            taken = await propose(kept)  # type: ignore[arg-type]
            taking.set()
            await goes_on.wait()
            return taken

        synchronizer.take = take  # type: ignore[method-assign, assignment]
        fetching = asyncio.ensure_future(all_of(synchronizer, Proposing(match)))
        await taking.wait()
        assert await mm.query_ids(EVERYONE) == []

        fetching.cancel()
        await eventually(lambda: synchronizer.under_way == 0, within_s=20)
        goes_on.set()

        await eventually(lambda: waiting_are(mm, {match.match_id}), within_s=20)


async def test_what_a_function_had_proposed_when_its_time_was_over_counts(mm: Matchmaking) -> None:
    [match] = await singles(mm, 1)
    async with (
        synchronizing(mm, collection_s=0.05) as synchronizer,
        aclosing(synchronizer.fetch(Proposing(match, ends=False), ANY)) as fetched,
    ):
        assert (await anext(fetched)).match_id == match.match_id
        with pytest.raises(FunctionFailed, match="context canceled"):
            await anext(fetched)


async def test_cycles_come_one_after_another_also_when_one_between_them_was_given_up(mm: Matchmaking) -> None:
    one, other, third = await singles(mm, 3)
    async with synchronizing(mm) as synchronizer:
        slow, given_up, last = Proposing(one, ends=False), Proposing(other), Proposing(third)
        first = asyncio.ensure_future(all_of(synchronizer, slow))
        await slow.has_begun.wait()
        second = asyncio.ensure_future(all_of(synchronizer, given_up))
        await eventually(lambda: synchronizer.under_way == 2, within_s=20)
        second.cancel()
        await eventually(lambda: synchronizer.under_way == 1, within_s=20)
        fetching = asyncio.ensure_future(all_of(synchronizer, last))
        await eventually(lambda: synchronizer.under_way == 2, within_s=20)

        for _ in range(50):
            await asyncio.sleep(0)
        assert not last.has_begun.is_set()
        first.cancel()

        assert [match.match_id for match in await fetching] == [third.match_id]
        assert not given_up.has_begun.is_set()


async def test_whoever_fetches_when_the_director_stops_is_told_to_do_so_elsewhere(mm: Matchmaking) -> None:
    matches = await singles(mm, 2)
    async with synchronizing(mm) as synchronizer:
        runs, waits = Proposing(matches[0], ends=False), Proposing(matches[1])
        fetching = [asyncio.ensure_future(all_of(synchronizer, runs))]
        await runs.has_begun.wait()
        fetching.append(asyncio.ensure_future(all_of(synchronizer, waits)))
        await eventually(lambda: synchronizer.under_way == 2, within_s=20)

    for one in fetching:
        with pytest.raises(BadCall) as refused:
            await one
        assert refused.value.code is StatusCode.UNAVAILABLE
    assert await waiting_are(mm, {match.match_id for match in matches})


async def test_a_hundred_calls_at_once_never_share_a_ticket(mm: Matchmaking) -> None:
    matches = await singles(mm, 50)
    wanted = [[match_of(f"{n}-{match.match_id}", *match.tickets) for match in matches] for n in range(100)]
    async with synchronizing(mm) as synchronizer:
        calls = (all_of(synchronizer, Proposing(*some)) for some in wanted)
        fetched = [match for some in await asyncio.gather(*calls) for match in some]

    ids = [ticket.id for match in fetched for ticket in match.tickets]
    assert len(ids) == len(set(ids)) == 50


async def all_of(synchronizer: Synchronizer, function: Proposing) -> list[messages_pb2.Match]:
    async with aclosing(synchronizer.fetch(function, ANY)) as matches:
        return [match async for match in matches]


async def waiting_are(mm: Matchmaking, ids: set[str]) -> bool:
    return set(await mm.query_ids(EVERYONE)) == ids
