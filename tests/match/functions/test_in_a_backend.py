"""Ready functions in a backend, on a server."""

from __future__ import annotations

from collections.abc import Sequence

from kizuna.app import connect
from kizuna.match import Assignment, Group, Match, Pool, Profile
from kizuna.match.functions import backfill_first, one_against_one, regions, teams, teams_of
from kizuna.settings import Settings

EVERYONE = Profile("ranked", [Pool("everyone")])


def send_to_regions(matches: Sequence[Match]) -> list[Group]:
    return [match.assigned(f"{match.extensions['region']!s}.example.com:7777") for match in matches]


async def test_teams_in_regions_are_assigned(settings: Settings) -> None:
    async with connect(settings) as k:
        tickets = [
            await k.match.create_ticket(doubles={"skill": 1500.0 + number, "latency.eu": 20.0}) for number in range(4)
        ]
        backend = k.match.backend(send_to_regions)
        backend.add(EVERYONE, regions(teams(size=2, teams=2)))
        tick = await backend.tick()

        [match] = tick.matches
        assert [len(team) for team in teams_of(match)] == [2, 2]
        assert (match.profile, match.extensions["latency_ms"]) == ("ranked", 20.0)
        found = [await k.match.assignment(ticket.id, timeout_s=30) for ticket in tickets]
        assert {assignment.connection for assignment in found} == {"eu.example.com:7777"}


async def test_a_backfill_is_filled_and_says_what_is_left(settings: Settings) -> None:
    async with connect(settings) as k:
        running = await k.match.create_backfill(doubles={"open_slots": 3.0})
        tickets = [await k.match.create_ticket(doubles={"party_size": 2.0})]
        backend = k.match.backend(lambda matches: [])
        backend.add(EVERYONE, backfill_first(one_against_one()))
        await backend.tick()

        left = await k.match.get_backfill(running.id)
        assert (left.doubles, left.generation) == ({"open_slots": 1.0}, 2)
        _, joined = await k.match.acknowledge_backfill(running.id, Assignment("game:1"))
        assert [ticket.id for ticket in joined] == [tickets[0].id]
        assert (await k.match.assignment(tickets[0].id, timeout_s=30)).connection == "game:1"
