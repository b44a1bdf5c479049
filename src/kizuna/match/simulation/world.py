"""Simulated time: players come, wait, play and go, and a backend ticks as a real one does.

A tick comes as soon as somebody is new, after the moment in which a backend gathers more, and every so often besides.
It runs the plan's own functions on the plan's own pools, and its evaluator, and no match is kept that the backend would
drop. What is not simulated: the server, the assigner, which is taken to find a game server at once, and backfills.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Literal

from kizuna.errors import TickFailed
from kizuna.match.calling import result_of
from kizuna.match.matches import Match, Waiting, without_overlaps
from kizuna.match.pools import sorted_into
from kizuna.match.simulation.outcome import NOBODY, Outcome
from kizuna.match.simulation.players import HOUR_S, Party, Players
from kizuna.settings import MatchSettings

if TYPE_CHECKING:
    from kizuna.match.plan import Plan, Planned
    from kizuna.match.simulation.population import Population
    from kizuna.match.tickets import Ticket

Kind = Literal["gives up", "queues"]


async def simulate(
    plan: Plan,
    population: Population,
    *,
    seed: int | None = None,
    hours: float | None = None,
    settings: MatchSettings | None = None,
) -> Outcome:
    """The same for the same seed. TickFailed if a function or the evaluator of the plan fails."""
    seed, hours = population.seed if seed is None else seed, hours or population.hours
    return await _World(plan, population, seed, settings or MatchSettings()).play(hours)


@dataclass(slots=True, eq=False)
class _Queued:
    ticket: Ticket
    party: Party
    returns: int
    """How often it queues again, if it plays now."""


class _World:
    def __init__(self, plan: Plan, population: Population, seed: int, settings: MatchSettings) -> None:
        self._plan, self._population, self._settings = plan, population, settings
        self._players = Players(population, seed)
        self._lengths = random.Random(seed + 1)  # noqa: S311 - not a secret
        self._outcome = Outcome.of(plan, population, seed)
        self._waiting: dict[str, _Queued] = {}
        """The oldest first, since each is added when it comes."""
        self._rest: list[str] = []
        """Those that this round of ticks has not looked at yet."""
        self._agenda: list[tuple[float, int, Kind, Any]] = []
        self._count = 0
        self._next_tick_s = math.inf

    async def play(self, hours: float) -> Outcome:
        end_s = self._players.start_s + hours * HOUR_S
        for now_s, party in self._players.arrivals(hours):
            await self._until(now_s)
            self._queue(now_s, party, party.returns)
        await self._until(end_s)
        for queued in self._waiting.values():
            self._outcome.still_waits(self._profile_of(queued.ticket))
        self._outcome.hours = hours
        return self._outcome

    async def _until(self, time_s: float) -> None:
        """Whatever happens before then."""
        while True:
            next_s = self._agenda[0][0] if self._agenda else math.inf
            if min(next_s, self._next_tick_s) >= time_s:
                return
            if self._next_tick_s <= next_s:
                await self._tick(self._next_tick_s)
            else:
                self._happen(*heappop(self._agenda))

    def _plan_for(self, time_s: float, kind: Kind, what: Any) -> None:
        self._count += 1
        heappush(self._agenda, (time_s, self._count, kind, what))

    def _happen(self, now_s: float, _: int, kind: Kind, what: Any) -> None:
        if kind == "queues":
            self._queue(now_s, *what)
        elif queued := self._waiting.pop(what, None):
            self._outcome.gave_up(self._profile_of(queued.ticket), queued.ticket, now_s)

    def _queue(self, now_s: float, party: Party, returns: int) -> None:
        self._count += 1
        ticket = party.queue(self._count, now_s)
        self._waiting[ticket.id] = _Queued(ticket, party, returns)
        # Whoever is more patient than a ticket lives has to ask again, which here is giving up.
        self._plan_for(now_s + min(party.patience_s, self._settings.ticket_s), "gives up", ticket.id)
        self._next_tick_s = min(self._next_tick_s, now_s + self._settings.gather_s)

    # -- matching -----------------------------------------------------------------------------------------

    async def _tick(self, now_s: float) -> None:
        tickets = self._fetch()
        matches = await self._evaluate(await self._make_matches(tickets, now_s))
        for match in matches:
            self._play(match, now_s)
        if self._rest:
            self._next_tick_s = now_s
        else:
            # Where nobody waits, nothing can happen until somebody comes.
            self._next_tick_s = now_s + self._settings.tick_every_s if self._waiting else math.inf

    def _fetch(self) -> list[Ticket]:
        """As a backend does: all that wait, or in turn where they are more than a tick may take."""
        limit = self._settings.fetch_limit
        if not self._rest and len(self._waiting) <= limit:
            return [queued.ticket for queued in self._waiting.values()]
        ids = self._rest or list(self._waiting)
        self._rest = ids[limit:]
        return [self._waiting[id_].ticket for id_ in ids[:limit] if id_ in self._waiting]

    async def _make_matches(self, tickets: Sequence[Ticket], now_s: float) -> list[Match]:
        matches: list[Match] = []
        if tickets:
            for planned in self._plan.profiles:
                matches += await self._run(planned, tickets, now_s)
        return matches

    async def _run(self, planned: Planned, tickets: Sequence[Ticket], now_s: float) -> list[Match]:
        profile = planned.profile
        waiting = Waiting(profile, sorted_into(profile.pools, tickets), now_s)
        made = await _asked(planned.function, waiting, f"match function {planned.name} of profile {profile.name}")
        for match in made:
            match.profile = match.profile or profile.name
            match.function = match.function or planned.name
        return [match for match in made if all(ticket.id in self._waiting for ticket in match.tickets)]

    async def _evaluate(self, matches: list[Match]) -> list[Match]:
        if self._plan.evaluator is not None and matches:
            stand = set(await _asked(self._plan.evaluator, matches, "evaluator"))
            matches = [match for match in matches if match.id in stand]
        return without_overlaps(matches)

    def _play(self, match: Match, now_s: float) -> None:
        self._outcome.played(match, now_s)
        ends_s = now_s + max(self._population.match_s.draw(self._lengths), 0.0)
        for id_ in match.ticket_ids:
            queued = self._waiting.pop(id_)
            if queued.returns:
                self._plan_for(ends_s, "queues", (queued.party, queued.returns - 1))

    def _profile_of(self, ticket: Ticket) -> str:
        """The first that would take it."""
        for planned in self._plan.profiles:
            if any(pool.takes(ticket) for pool in planned.profile.pools):
                return planned.profile.name
        return NOBODY


async def _asked(function: Callable[[Any], Any], argument: Any, what: str) -> list[Any]:
    try:
        return await result_of(function(argument))
    except Exception as error:
        raise TickFailed(f"{what}: {error!r}") from error
