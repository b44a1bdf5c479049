"""Teams whose players are about equally skilled; parties stay together.

The oldest ticket chooses first: of all matches that it can be in, the one whose skills are nearest together. That is a
run of neighbours in the order of skill, so each ticket looks at a few on either side and the whole is as fast as
sorting. A match stands if the difference between its most and its least skilled ticket is within the window of the
oldest of them. Only of the oldest, since the young ones come and go: if all had to agree, somebody at the edge would
always meet new ones whose windows are narrow still, and wait for ever.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from kizuna.match.functions.balance import Party, Team, balanced, players_of
from kizuna.match.functions.combining import of_each_pool
from kizuna.match.functions.options import Arg, Distance, Players, PureFunction, with_options
from kizuna.match.functions.seating import Seating, seat
from kizuna.match.functions.widening import Widening
from kizuna.match.matches import Match, Waiting
from kizuna.match.tickets import Ticket

TEAMS = "teams"
"""The extension of a match that tells its teams: JSON, a list of ids of tickets for each."""

# To each side of the one who chooses, as many tickets as a match has players are looked at, and if that finds nothing,
# so many times as many.
_LOOKED_AT = 4


@with_options
def teams(
    *,
    size: Players = 5,
    teams: Players = 2,
    skill: Arg = "skill",
    window: Distance = 100.0,
    widens_by_s: Distance = 10.0,
    widest: Distance = 1000.0,
    party: Arg = "party_size",
) -> PureFunction:
    """So many teams of so many players, of each pool. Their skills differ by `window` at most, and by so much more for
    each second that the oldest has waited, up to `widest`. A ticket may stand for several players of that skill."""
    rules = _Rules(size, teams, skill, Widening(window, widens_by_s, max(window, widest)), party)

    def make_teams(waiting: Waiting) -> list[Match]:
        return of_each_pool(waiting, lambda tickets: list(_made(rules, tickets, waiting.now_s)))

    return make_teams


@with_options
def parties(*, players: Players = 10, party: Arg = "party_size") -> PureFunction:
    """Matches of so many players, of each pool, oldest first; parties stay together."""
    rules = _Rules(players, 1, None, Widening(0.0, 0.0, 0.0), party)

    def gather_parties(waiting: Waiting) -> list[Match]:
        return of_each_pool(waiting, lambda tickets: list(_made(rules, tickets, waiting.now_s)))

    return gather_parties


def teams_of(match: Match) -> list[list[Ticket]]:
    """The teams of a match that `teams` has made; all in one if it tells none."""
    by_id = {ticket.id: ticket for ticket in match.tickets}
    told = match.extensions.get(TEAMS)
    try:
        ids = msgspec.json.decode(told, type=list[list[str]]) if isinstance(told, str) else []
    except msgspec.DecodeError:
        ids = []  # somebody else's extension of that name
    if sorted(id_ for team in ids for id_ in team) != sorted(by_id):
        return [list(match.tickets)]
    return [[by_id[id_] for id_ in team] for team in ids]


@dataclass(frozen=True)
class _Rules:
    size: int
    teams: int
    skill: str | None
    """None: it does not matter."""
    window: Widening
    party: str

    @property
    def players(self) -> int:
        return self.size * self.teams

    def parties_of(self, tickets: Sequence[Ticket]) -> list[Party]:
        """Without those that can be in no match: they wait."""
        found: list[Party] = []
        for age, ticket in enumerate(tickets):
            skill = 0.0 if self.skill is None else ticket.doubles.get(self.skill, math.nan)
            players = players_of(ticket, self.party)
            if 1 <= players <= self.size and math.isfinite(skill):
                found.append(Party(ticket, skill, players, age))
        return found

    def window_of(self, party: Party, now_s: float) -> float:
        return self.window.after(party.ticket.waited_s(now_s))


def _made(rules: _Rules, tickets: Sequence[Ticket], now_s: float) -> Iterator[Match]:
    parties = rules.parties_of(tickets)
    by_skill = sorted(parties, key=lambda party: party.skill)
    if not parties or not _is_possible(rules.players, by_skill, rules.window_of(parties[0], now_s)):
        return
    line = _Line(rules, parties, by_skill)
    for party in line.oldest_first():
        found = line.nearest_match(party, rules.window_of(party, now_s))
        if found:
            yield _match(rules, balanced(*found))


def _is_possible(players: int, by_skill: Sequence[Party], widest: float) -> bool:
    """Whether enough of them are anywhere near enough together. Mostly, while few wait, they are not, and nothing else
    has to be looked at."""
    start = near = 0
    for party in by_skill:
        near += party.players
        while party.skill - by_skill[start].skill > widest:
            near -= by_skill[start].players
            start += 1
        if near >= players:
            return True
    return False


def _match(rules: _Rules, found: list[Team]) -> Match:
    everyone = [party for team in found for party in team.parties]
    tickets = [party.ticket for party in everyone]
    if rules.skill is None:
        return Match(tickets)
    skills = [party.skill for party in everyone]
    spread = max(skills) - min(skills)
    strengths = [team.strength / rules.size for team in found]
    # From 1 for equals in equal teams, to 0, of which rounding could lead a hair below.
    score = max(1 - (spread + max(strengths) - min(strengths)) / (2 * rules.window.most or 1), 0.0)
    told = json.dumps([[party.ticket.id for party in team.parties] for team in found])
    return Match(tickets, score=score, extensions={TEAMS: told})


class _Line:
    """Parties by skill, each with a neighbour on either side. Those that are taken step out of it."""

    def __init__(self, rules: _Rules, parties: list[Party], by_skill: list[Party]) -> None:
        self._rules = rules
        self._by_age, self._parties = parties, by_skill
        self._at = {party.age: place for place, party in enumerate(self._parties)}
        # One beyond the last is also one before the first.
        self._left = list(range(-1, len(parties)))
        self._right = [*range(1, len(parties) + 1), 0]
        self._skills = [party.skill for party in self._parties]
        self._players_below = [0, *accumulate(party.players for party in self._parties)]
        self._counts = _counts(parties, rules.size)
        self._enough = [rules.players // max(size, 1) for size in range(rules.size + 1)]
        self._reaches = (rules.players, _LOOKED_AT * rules.players)

    def oldest_first(self) -> Iterator[Party]:
        """Those that are not taken when it is their turn."""
        return (party for party in self._by_age if party.age in self._at)

    def nearest_match(self, oldest: Party, window: float) -> tuple[Seating, list[Party]] | None:
        """The parties of the match around this one whose skills are nearest together; they step out of the line."""
        if not self._has_enough_around(oldest.skill, window) or not self._seated(self._counts, oldest):
            return None
        for most in self._reaches:
            near, at = self._neighbours(oldest, window, most)
            run = self._shortest_run(near, at, window)
            if run is None and at < most and len(near) - at <= most:
                return None  # those were all that there are
            if run:
                seating, start, end = run
                chosen = _chosen(seating, oldest, near[start:end])
                for party in chosen:
                    self._take(party)
                return seating, chosen
        return None

    def _has_enough_around(self, skill: float, window: float) -> bool:
        """Also counts who is taken, and a hair beyond the window: it is to find out quickly who waits in vain."""
        reach = window + 1e-9 * (1 + abs(skill) + window)
        start = bisect_left(self._skills, skill - reach)
        end = bisect_right(self._skills, skill + reach)
        return self._players_below[end] - self._players_below[start] >= self._rules.players

    def _neighbours(self, party: Party, window: float, most: int) -> tuple[list[Party], int]:
        """Those within the window to either side, by skill, and where the party is among them."""
        place = self._at[party.age]
        below = self._walk(self._left, place, party.skill, window, most)
        below.reverse()
        return [*below, party, *self._walk(self._right, place, party.skill, window, most)], len(below)

    def _walk(self, beside: list[int], place: int, skill: float, window: float, most: int) -> list[Party]:
        parties, end = self._parties, len(self._parties)
        met: list[Party] = []
        place = beside[place]
        while 0 <= place < end and len(met) < most:
            party = parties[place]
            if abs(party.skill - skill) > window:
                break
            met.append(party)
            place = beside[place]
        return met

    def _shortest_run(self, near: list[Party], at: int, window: float) -> tuple[Seating, int, int] | None:
        """The neighbours nearest together, with the one at `at`, of whom full teams can be made."""
        if sum([party.players for party in near]) < self._rules.players:
            return None
        if not self._seated(_counts(near, self._rules.size), near[at]):
            return None
        best, shortest = None, window
        counts = _counts(near[: at + 1], self._rules.size)
        end = at + 1
        for start in range(at + 1):
            # The run that starts here ends no sooner than the one before it.
            while near[end - 1].skill - near[start].skill <= shortest:
                if seating := self._seated(counts, near[at]):
                    best, shortest = (seating, start, end), near[end - 1].skill - near[start].skill
                    break
                if end == len(near):
                    return best
                counts[near[end].players] += 1
                end += 1
            counts[near[start].players] -= 1
        return best

    def _seated(self, counts: list[int], party: Party) -> Seating | None:
        rules = self._rules
        # More than fill all teams make no difference, and the fewer cases there are, the more are remembered.
        return seat(rules.teams, rules.size, tuple(map(min, counts, self._enough)), party.players)

    def _take(self, party: Party) -> None:
        place = self._at.pop(party.age)
        before, after = self._left[place], self._right[place]
        self._right[before] = after
        self._left[after] = before
        self._counts[party.players] -= 1


def _counts(parties: Sequence[Party], size: int) -> list[int]:
    counts = [0] * (size + 1)
    for party in parties:
        counts[party.players] += 1
    return counts


def _chosen(seating: Seating, oldest: Party, near: list[Party]) -> list[Party]:
    """Of each size as many as have a seat, the oldest first."""
    wanted: dict[int, int] = {}
    for sizes in seating:
        for size in sizes:
            wanted[size] = wanted.get(size, 0) + 1
    chosen: list[Party] = []
    # The one who chooses may be younger than some who found nothing, and has a seat all the same.
    for party in sorted(near, key=lambda party: (party is not oldest, party.age)):
        if wanted.get(party.players):
            wanted[party.players] -= 1
            chosen.append(party)
    return chosen
