"""Match functions that are ready to use. Each is made with options, and pure: the time is in what it is given.

`READY` has them by name, for files.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from kizuna.match.functions.backfilling import backfill_first
from kizuna.match.functions.combining import by_pool, in_turn, together
from kizuna.match.functions.duels import one_against_one, simple_1vs1
from kizuna.match.functions.options import PureFunction, function_of
from kizuna.match.functions.regions import regions
from kizuna.match.functions.teams import parties, teams, teams_of

READY: MappingProxyType[str, Callable[..., PureFunction]] = MappingProxyType[str, Callable[..., Any]](
    {
        "one_against_one": one_against_one,
        "simple_1vs1": simple_1vs1,
        "teams": teams,
        "parties": parties,
        "regions": regions,
        "backfill_first": backfill_first,
        "by_pool": by_pool,
        "in_turn": in_turn,
        "together": together,
    }
)

__all__ = [
    "READY",
    "PureFunction",
    "backfill_first",
    "by_pool",
    "function_of",
    "in_turn",
    "one_against_one",
    "parties",
    "regions",
    "simple_1vs1",
    "teams",
    "teams_of",
    "together",
]
