"""What came of a simulation: how long people waited, and how good their matches were."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kizuna.match.functions.regions import REGION
from kizuna.match.functions.teams import teams_of

if TYPE_CHECKING:
    from kizuna.match.matches import Match
    from kizuna.match.plan import Plan
    from kizuna.match.simulation.population import Population
    from kizuna.match.tickets import Ticket

NOBODY = ""
"""The name under which those are counted whom no profile takes."""


class Series(list[float]):
    """Values of one kind."""

    def percentile(self, percent: float) -> float:
        """The least value that so many percent do not exceed; NaN if there are none."""
        ordered = sorted(self)
        return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else math.nan

    def summary(self) -> dict[str, float] | None:
        if not self:
            return None
        ordered = Series(sorted(self))
        named = {f"p{percent}": ordered.percentile(percent) for percent in (50, 95, 99)}
        return {"mean": sum(ordered) / len(ordered), **named, "most": ordered[-1]}


@dataclass
class ProfileOutcome:
    name: str
    function: str
    matches: int = 0
    tickets: int = 0
    players: int = 0
    """Of the tickets that were matched."""
    gave_up: int = 0
    waiting: int = 0
    """Who were neither matched nor gone when the time was over."""
    waited_s: Series = field(default_factory=Series)
    """Of each ticket that was matched."""
    gave_up_after_s: Series = field(default_factory=Series)
    skill_apart: Series = field(default_factory=Series)
    """Of each match, between its most and its least skilled ticket."""
    teams_apart: Series = field(default_factory=Series)
    """Of each match with teams, between the mean skills of the strongest and the weakest."""
    latency_ms: Series = field(default_factory=Series)
    """Of each ticket of a match that has a region."""

    @property
    def came(self) -> int:
        return self.tickets + self.gave_up + self.waiting

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        counts = ("matches", "tickets", "players", "gave_up", "waiting")
        series = ("waited_s", "gave_up_after_s", "skill_apart", "teams_apart", "latency_ms")
        return {
            "profile": self.name,
            "function": self.function,
            **{name: getattr(self, name) for name in counts},
            **{name: _rounded(getattr(self, name).summary()) for name in series},
        }


@dataclass
class Outcome:
    origin: str
    seed: int
    skill_arg: str
    party_arg: str
    latency_arg: str
    profiles: dict[str, ProfileOutcome]
    hours: float = 0.0

    @classmethod
    def of(cls, plan: Plan, population: Population, seed: int) -> Outcome:
        profiles = {one.profile.name: ProfileOutcome(one.profile.name, one.name) for one in plan.profiles}
        args = (population.skill_arg, population.party_arg, population.latency_arg)
        return cls(str(plan.path), seed, *args, profiles | {NOBODY: ProfileOutcome(NOBODY, "")})

    def shown(self) -> Iterator[ProfileOutcome]:
        """All profiles of the plan; and those whom none takes, if there are any."""
        return (profile for name, profile in self.profiles.items() if name != NOBODY or profile.came)

    def as_dicts(self) -> list[dict[str, Any]]:
        told = {"file": self.origin, "seed": self.seed, "hours": self.hours}
        return [told | profile.as_dict() for profile in self.shown()]

    # -- as it happens ------------------------------------------------------------------------------------

    def played(self, match: Match, now_s: float) -> None:
        profile = self.profiles.setdefault(match.profile, ProfileOutcome(match.profile, match.function))
        profile.matches += 1
        profile.tickets += len(match.tickets)
        profile.players += sum(map(self._players, match.tickets))
        profile.waited_s += [ticket.waited_s(now_s) for ticket in match.tickets]
        skills = [ticket.doubles[self.skill_arg] for ticket in match.tickets if self.skill_arg in ticket.doubles]
        if len(skills) > 1:
            profile.skill_apart.append(max(skills) - min(skills))
        profile.teams_apart += self._teams_apart(match)
        profile.latency_ms += self._latencies(match)

    def gave_up(self, profile: str, ticket: Ticket, now_s: float) -> None:
        self.profiles[profile].gave_up += 1
        self.profiles[profile].gave_up_after_s.append(ticket.waited_s(now_s))

    def still_waits(self, profile: str) -> None:
        self.profiles[profile].waiting += 1

    def _players(self, ticket: Ticket) -> int:
        return round(ticket.doubles.get(self.party_arg, 1))

    def _teams_apart(self, match: Match) -> Iterator[float]:
        teams = teams_of(match)
        if len(teams) > 1:
            strengths = [self._strength(team) for team in teams]
            yield max(strengths) - min(strengths)

    def _strength(self, team: Sequence[Ticket]) -> float:
        """The mean skill of its players."""
        total = sum(ticket.doubles.get(self.skill_arg, 0.0) * self._players(ticket) for ticket in team)
        return total / max(1, sum(map(self._players, team)))

    def _latencies(self, match: Match) -> Iterator[float]:
        region = match.extensions.get(REGION)
        if isinstance(region, str):
            arg = self.latency_arg + region
            yield from (ticket.doubles[arg] for ticket in match.tickets if arg in ticket.doubles)


def _rounded(summary: dict[str, float] | None) -> dict[str, float] | None:
    return summary and {name: round(value, 3) for name, value in summary.items()}
