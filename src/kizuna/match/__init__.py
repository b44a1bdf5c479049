"""Matchmaking: players who wait, matches that are made of them, and assignments that tell them where to play.

Speaks Open Match, and keeps its data as minimatch does. What is named here is loaded when it is used: the names of the
keys are known also where the extra `match` is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kizuna.match.backend import Backend, Tick
    from kizuna.match.backfills import Backfill
    from kizuna.match.matches import Assigner, Evaluator, Group, Match, MatchFunction, Waiting, best_first
    from kizuna.match.pools import DoubleRange, Pool, Profile
    from kizuna.match.tickets import Assignment, Ticket

_PLACES = {
    "Assigner": "matches",
    "Assignment": "tickets",
    "Backend": "backend",
    "Backfill": "backfills",
    "DoubleRange": "pools",
    "Evaluator": "matches",
    "Group": "matches",
    "Match": "matches",
    "MatchFunction": "matches",
    "Pool": "pools",
    "Profile": "pools",
    "Tick": "backend",
    "Ticket": "tickets",
    "Waiting": "matches",
    "best_first": "matches",
}

__all__ = [
    "Assigner",
    "Assignment",
    "Backend",
    "Backfill",
    "DoubleRange",
    "Evaluator",
    "Group",
    "Match",
    "MatchFunction",
    "Pool",
    "Profile",
    "Tick",
    "Ticket",
    "Waiting",
    "best_first",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
