"""Who plays in which team, so that the teams are about equally strong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kizuna.match.functions.seating import Seating
    from kizuna.match.tickets import Ticket

# Each exchange brings the strongest and the weakest team nearer; more are never needed in practice.
_EXCHANGES = 20


@dataclass(slots=True, eq=False)
class Party:
    ticket: Ticket
    skill: float
    """Of each of its players."""
    players: int
    age: int
    """0 is the oldest of all."""


@dataclass(slots=True)
class Team:
    room: dict[int, int]
    """How many parties of each size it takes on still."""
    parties: list[Party] = field(default_factory=list)
    strength: float = 0.0
    """How far its players are above the mean of all, added up."""


def balanced(seating: Seating, parties: Sequence[Party]) -> list[Team]:
    """The parties in teams of these sizes. When it ends, no exchange of two parties of one size between the strongest
    and the weakest team brings the two nearer."""
    # By differences, which are small: also the largest numbers there are can be compared.
    first = parties[0].skill
    players = sum(party.players for party in parties)
    mean = first + sum((party.skill - first) * party.players for party in parties) / players
    teams = [Team({size: sizes.count(size) for size in sizes}) for sizes in seating]
    for party in sorted(parties, key=lambda party: (-party.players, -party.skill, party.age)):
        open_ones = [team for team in teams if team.room.get(party.players)]
        weakest = min(open_ones, key=lambda team: team.strength)
        weakest.room[party.players] -= 1
        weakest.parties.append(party)
        weakest.strength += (party.skill - mean) * party.players
    for _ in range(_EXCHANGES):
        if not _exchange(max(teams, key=_strength), min(teams, key=_strength)):
            break
    return teams


def _strength(team: Team) -> float:
    return team.strength


def _exchange(strong: Team, weak: Team) -> bool:
    """The one exchange that brings them nearest; False if none does."""
    apart = strong.strength - weak.strength
    nearest, best = apart, None
    for one in strong.parties:
        for other in weak.parties:
            if one.players == other.players:
                after = abs(apart - 2 * (one.skill - other.skill) * one.players)
                # By more than rounding, or the two would be exchanged for ever.
                if after < nearest - 1e-9 * (1 + apart):
                    nearest, best = after, (one, other)
    if best is None:
        return False
    one, other = best
    strong.parties[strong.parties.index(one)] = other
    weak.parties[weak.parties.index(other)] = one
    moved = (one.skill - other.skill) * one.players
    strong.strength -= moved
    weak.strength += moved
    return True


def players_of(ticket: Ticket, arg: str) -> int:
    """How many players stand behind a ticket; 1 if it does not say, 0 if it says something that cannot be."""
    said = ticket.doubles.get(arg, 1.0)
    return int(said) if said >= 1 and said.is_integer() else 0
