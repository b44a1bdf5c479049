"""Where to play: the region in which everybody's latency is within what they put up with.

A ticket says its latencies as numbers, `latency.eu = 23`. What it puts up with widens while it waits. Everybody is
first matched in their own best region, then also in their second best, and so on: so nobody plays far away who could
have played near, and nobody waits who could have played somewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kizuna.match.functions.combining import without
from kizuna.match.functions.options import Arg, Distance, Inner, PureFunction, function_of, with_options
from kizuna.match.functions.widening import Widening
from kizuna.match.matches import Match, Waiting
from kizuna.match.tickets import Ticket

REGION = "region"
"""The extension of a match that says where it is played; also the string argument of a backfill that does."""
LATENCY_MS = "latency_ms"
"""The extension that says the highest latency of its tickets there."""

Choices = Mapping[str, Sequence[str]]
"""By id of the ticket: the regions that it puts up with, the nearest first."""


@with_options
def regions(
    function: Inner = "one_against_one",
    *,
    latency: Arg = "latency.",
    limit_ms: Distance = 80.0,
    widens_by_s: Distance = 5.0,
    widest_ms: Distance = 300.0,
) -> PureFunction:
    """Matches that the other function makes, of tickets whose latency is at most `limit_ms` in one region, and so much
    more for each second that they have waited. The match has the extensions `region` and `latency_ms`."""
    inner = function_of(function)
    limit = Widening(limit_ms, widens_by_s, max(limit_ms, widest_ms))

    def match_in_regions(waiting: Waiting) -> list[Match]:
        matches: list[Match] = []
        choices = {ticket.id: _choices(ticket, latency, limit, waiting.now_s) for ticket in waiting.tickets}
        for region, rank in _turns(choices):
            there = _there(waiting, region, rank, choices)
            made = [_placed(match, region, latency) for match in inner(there)]
            for match in made:
                for ticket in match.tickets:
                    choices.pop(ticket.id, None)
            matches += made
            waiting = without(waiting, made)
        return matches

    return match_in_regions


def _choices(ticket: Ticket, latency: str, limit: Widening, now_s: float) -> list[str]:
    most = limit.after(ticket.waited_s(now_s))
    found = [(ms, arg) for arg, ms in ticket.doubles.items() if ms <= most and arg.startswith(latency)]
    return [arg.removeprefix(latency) for _, arg in sorted(found)]


def _turns(choices: Choices) -> Iterator[tuple[str, int]]:
    """Each region with those that have it as their first choice, then each also with second choices, and so on; where
    nobody is left who would join, it has no turn. The region of the oldest comes first. `choices` loses whoever is
    matched meanwhile."""
    ranks = max(map(len, choices.values()), default=0)
    for rank in range(ranks):
        wanted = dict.fromkeys(chosen[rank] for chosen in choices.values() if len(chosen) > rank)
        yield from ((region, rank) for region in wanted)


def _there(waiting: Waiting, region: str, rank: int, choices: Choices) -> Waiting:
    """Those who would play there: whose choice it is, up to this rank."""
    pools = {
        name: [ticket for ticket in tickets if region in choices[ticket.id][: rank + 1]]
        for name, tickets in waiting.pools.items()
    }
    backfills = {
        name: [backfill for backfill in found if backfill.strings.get(REGION) == region]
        for name, found in waiting.backfills.items()
    }
    return replace(waiting, pools=pools, backfills=backfills)


def _placed(match: Match, region: str, latency: str) -> Match:
    worst = max(ticket.doubles[latency + region] for ticket in match.tickets)
    match.extensions = {**match.extensions, REGION: region, LATENCY_MS: worst}
    return match
