"""A director and its match functions, from a ticket to the player who is told where to play."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc import StatusCode
from tests.match.director.directing import OWN_CONNECTION, OpenMatch, match_of, matches_of, open_match, refusal
from tests.match.director.functions import failing, never_ending, proposing

from kizuna import connect
from kizuna.match.director.director import Director
from kizuna.match.openmatch import backend_pb2_grpc, frontend_pb2, messages_pb2
from kizuna.match.serving.grpc_server import GrpcServer
from kizuna.metrics import Histogram
from kizuna.service import running
from kizuna.settings import Settings
from kizuna.testing import assert_starts_and_stops, eventually


async def test_players_are_matched_and_told_where_to_play(om: OpenMatch) -> None:
    om.functions.function = om.pairs_of_all_who_wait()
    tickets = [await created(om, tags=["casual"]) for _ in range(4)]
    watching = [asyncio.ensure_future(first_assignment(om, ticket.id)) for ticket in tickets]

    for match in await matches_of(om.fetch("1v1")):
        answer = await om.assign(f"server-of-{match.match_id}:7777", *(ticket.id for ticket in match.tickets))
        assert list(answer.failures) == []

    told = await asyncio.wait_for(asyncio.gather(*watching), 20)
    assert told[0] == told[1] == f"server-of-1v1-{tickets[0].id}-{tickets[1].id}:7777"
    assert told[2] == told[3] == f"server-of-1v1-{tickets[2].id}-{tickets[3].id}:7777"
    assert await om.mm.count() == 0


async def test_two_directors_never_hand_out_one_ticket_twice(settings: Settings) -> None:
    async with open_match(settings) as one, open_match(settings) as other:
        ids = {ticket.id for ticket in await one.tickets(40)}
        one.functions.function = one.pairs_of_all_who_wait()
        other.functions.function = other.pairs_of_all_who_wait()

        fetches = [matches_of(om.fetch(f"p{n}")) for n in range(4) for om in (one, other)]
        fetched = [match for matches in await asyncio.gather(*fetches) for match in matches]

        handed_out = [ticket.id for match in fetched for ticket in match.tickets]
        assert len(handed_out) == len(set(handed_out))
        assert set(handed_out) | await one.waiting() == ids


async def test_a_match_that_was_fetched_is_safe_from_a_second_director_until_it_is_released(
    settings: Settings,
) -> None:
    async with open_match(settings) as one, open_match(settings) as other:
        await one.tickets(2)
        one.functions.function = one.pairs_of_all_who_wait()
        other.functions.function = other.pairs_of_all_who_wait()

        [fetched] = await matches_of(one.fetch())
        assert await matches_of(other.fetch()) == []
        await one.mm.release_tickets([ticket.id for ticket in fetched.tickets])

        [again] = await matches_of(other.fetch())
        assert {ticket.id for ticket in again.tickets} == {ticket.id for ticket in fetched.tickets}


async def test_over_shards_tickets_of_one_partition_meet_and_others_do_not(settings: Settings) -> None:
    async with open_match(settings, shards=8, partition_arg="region") as om:
        by_shard: dict[str, list[messages_pb2.Ticket]] = {}
        for region in ("eu", "us", "asia", "africa", "oceania"):
            for _ in range(2):
                ticket = await om.ticket(strings={"region": region})
                by_shard.setdefault(om.mm.roots.of(ticket.id), []).append(ticket)
        here, there = list(by_shard.values())[:2]

        fetched = await om.fetched(
            proposing(match_of("across", here[0], there[0]), match_of("here", here[1]), match_of("there", there[1]))
        )

        assert {match.match_id for match in fetched} == {"here", "there"}
        taken = {here[1].id, there[1].id}
        assert await om.waiting() == {ticket.id for some in by_shard.values() for ticket in some} - taken


async def test_a_director_starts_and_stops_as_often_as_it_is_told_to(settings: Settings) -> None:
    async with connect(settings) as k:
        await assert_starts_and_stops(lambda: Director(k.match, k.settings.match))


async def test_a_director_that_stops_ends_what_is_under_way_and_keeps_no_ticket(settings: Settings) -> None:
    async with open_match(settings) as om:
        ids = {ticket.id for ticket in await om.tickets(2)}
        fetching = await fetched_until_it_stops(om)

        assert fetching in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)
        assert await om.waiting() == ids


async def fetched_until_it_stops(om: OpenMatch) -> Any:
    """What a caller is told whose function does not end before a second director, of its own, is stopped."""
    director = Director(om.mm, om.k.settings.match)
    server = GrpcServer(director.backend_rpcs(), om.k.settings.match, port=0, ready=ready, grace_s=0.05)
    om.functions.function = never_ending()
    async with running(director, server):
        channel = grpc.aio.insecure_channel(server.address, OWN_CONNECTION)
        backend: Any = backend_pb2_grpc.BackendServiceStub(channel)  # type: ignore[no-untyped-call]
        stream = backend.FetchMatches(om.request())
        await eventually(lambda: om.functions.runs == 1, within_s=20)
    code = await stream.code()
    await channel.close()
    return code


async def ready() -> list[str]:
    return []


async def test_what_a_director_did_is_counted(om: OpenMatch) -> None:
    one, other, third = await om.tickets(3)
    await om.fetched(proposing(match_of("1", one)))
    await om.fetched(proposing(match_of("2", one), match_of("3", other, score=2), match_of("4", other, score=1)))
    await refusal(om.fetched(failing(match_of("5", third))))
    await eventually(lambda: om.director._synchronizer.counts.cycles == 3, within_s=20)

    found = {(measure.name, *measure.labels.values()): measure.value for measure in om.director.measures()}

    cycles = found.pop(("kizuna_match_cycle_seconds",))
    assert isinstance(cycles, Histogram)
    assert cycles.count == 3
    assert found == {
        ("kizuna_match_fetches_under_way",): 0,
        ("kizuna_match_cycles_total",): 3,
        ("kizuna_match_functions_failed_total",): 1,
        ("kizuna_match_proposals_total", "taken"): 2,
        ("kizuna_match_proposals_total", "rejected"): 1,
        ("kizuna_match_proposals_total", "dropped"): 1,
        ("kizuna_match_unfetched_total",): 0,
    }


async def created(om: OpenMatch, **fields: Any) -> messages_pb2.Ticket:
    wanted = messages_pb2.Ticket(search_fields=messages_pb2.SearchFields(**fields))
    ticket: messages_pb2.Ticket = await om.frontend.CreateTicket(frontend_pb2.CreateTicketRequest(ticket=wanted))
    return ticket


async def first_assignment(om: OpenMatch, id_: str) -> str:
    async for response in om.frontend.WatchAssignments(frontend_pb2.WatchAssignmentsRequest(ticket_id=id_)):
        return str(response.assignment.connection)
    raise AssertionError("the stream ended")
