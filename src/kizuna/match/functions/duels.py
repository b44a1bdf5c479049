"""Two against each other, whoever they are: oldest first."""

from __future__ import annotations

from collections.abc import Sequence

from kizuna.match.functions.combining import of_each_pool
from kizuna.match.functions.options import PureFunction, with_options
from kizuna.match.matches import Match, Waiting
from kizuna.match.tickets import Ticket


@with_options
def one_against_one() -> PureFunction:
    """Pairs of each pool, oldest first; an odd one waits."""

    def pair_up(waiting: Waiting) -> list[Match]:
        return of_each_pool(waiting, _paired)

    return pair_up


@with_options
def simple_1vs1() -> PureFunction:
    """The same pairs, with ids and names as minimatch's Simple1vs1 has them: `ranked_[id id]`."""

    def pair_up_as_minimatch(waiting: Waiting) -> list[Match]:
        matches = of_each_pool(waiting, _paired)
        for match in matches:
            match.id = f"{waiting.profile.name}_[{' '.join(match.ticket_ids)}]"
            match.function = "Simple1vs1"
        return matches

    return pair_up_as_minimatch


def _paired(tickets: Sequence[Ticket]) -> list[Match]:
    """Without a test for each: a backlog of many thousands comes through here."""
    one_by_one = iter(tickets)
    return [Match(pair) for pair in zip(one_by_one, one_by_one, strict=False)]
