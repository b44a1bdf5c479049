"""Functions made of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from kizuna.errors import WrongValue
from kizuna.match.functions.options import Inner, PureFunction, function_of, with_options
from kizuna.match.matches import Match, Waiting
from kizuna.match.pools import BY_AGE
from kizuna.match.tickets import Ticket

ALL = "all"
"""The name of the pool that `together` makes."""


@with_options
def in_turn(functions: Iterable[Inner]) -> PureFunction:
    """Each makes matches of what those before it have left."""
    inner = [function_of(function) for function in functions]

    def make_in_turn(waiting: Waiting) -> list[Match]:
        matches: list[Match] = []
        for function in inner:
            made = list(function(waiting))
            matches += made
            waiting = without(waiting, made)
        return matches

    return make_in_turn


@with_options
def by_pool(functions: Mapping[str, Inner]) -> PureFunction:
    """Each pool has a function of its own. The tickets of pools that are not named wait."""
    inner = {pool: function_of(function) for pool, function in functions.items()}

    def make_by_pool(waiting: Waiting) -> list[Match]:
        if unknown := inner.keys() - waiting.pools.keys():
            raise WrongValue("a pool of by_pool", repr(min(unknown)), f"one of {', '.join(waiting.pools)}")
        matches: list[Match] = []
        for pool, function in inner.items():
            made = list(function(only(waiting, pool)))
            matches += made
            waiting = without(waiting, made)
        return matches

    return make_by_pool


@with_options
def together(function: Inner) -> PureFunction:
    """The tickets of all pools, as if they were one."""
    inner = function_of(function)

    def make_together(waiting: Waiting) -> Iterable[Match]:
        backfills = {backfill.id: backfill for of_pool in waiting.backfills.values() for backfill in of_pool}
        oldest_first = sorted(backfills.values(), key=BY_AGE)
        return inner(replace(waiting, pools={ALL: waiting.tickets}, backfills={ALL: oldest_first}))

    return make_together


def of_each_pool(waiting: Waiting, make: Callable[[Sequence[Ticket]], list[Match]]) -> list[Match]:
    """What is made of each pool by itself. A ticket of several pools is offered to the next one while it is free."""
    if len(waiting.pools) == 1:
        return make(next(iter(waiting.pools.values())))
    matches: list[Match] = []
    taken: set[str] = set()
    for tickets in waiting.pools.values():
        made = make([ticket for ticket in tickets if ticket.id not in taken])
        taken.update(ticket.id for match in made for ticket in match.tickets)
        matches += made
    return matches


def without(waiting: Waiting, matches: Sequence[Match]) -> Waiting:
    """Those who are in none of the matches."""
    if not matches:
        return waiting
    taken = {ticket.id for match in matches for ticket in match.tickets}
    filled = {match.backfill.id for match in matches if match.backfill}
    return replace(
        waiting,
        pools={name: [one for one in tickets if one.id not in taken] for name, tickets in waiting.pools.items()},
        backfills={name: [one for one in found if one.id not in filled] for name, found in waiting.backfills.items()},
    )


def only(waiting: Waiting, pool: str) -> Waiting:
    """One pool of them."""
    return replace(waiting, pools={pool: waiting.pools[pool]}, backfills={pool: waiting.backfills.get(pool, ())})
