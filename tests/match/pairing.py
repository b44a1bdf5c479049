"""Match functions and assigners for tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kizuna.match import Assigner, Backend, Group, Match, Pool, Profile, Waiting
from kizuna.match.matchmaking import Matchmaking

EVERYONE = Profile("1v1", [Pool("everyone")])


def pairs(waiting: Waiting) -> Iterator[Match]:
    """The oldest first, in pairs, in each pool."""
    for tickets in waiting.pools.values():
        for pair in zip(tickets[::2], tickets[1::2], strict=False):
            yield Match(pair)


def at_once(matches: Sequence[Match]) -> Iterable[Group]:
    """A server of its own for each match."""
    return [match.assigned(f"{match.id}.example:7777") for match in matches]


def pairing(mm: Matchmaking, assigner: Assigner = at_once, profile: Profile = EVERYONE, **options: object) -> Backend:
    """A backend that makes pairs."""
    backend = mm.backend(assigner, **options)  # type: ignore[arg-type]
    backend.add(profile, pairs)
    return backend


async def connections(mm: Matchmaking, *ids: str) -> list[str | None]:
    """Where each ticket is to play."""
    assignments = [(await mm.get_ticket(id_)).assignment for id_ in ids]
    return [None if assignment is None else assignment.connection for assignment in assignments]
