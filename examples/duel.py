"""Players who wait for an opponent, and a backend that brings two of about the same skill together.

$ python examples/duel.py

Here all are tasks of one program; usually games ask `kizuna match frontend`, and backends are programs of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import kizuna
from kizuna.match import DoubleRange, Group, Match, Pool, Profile, Waiting

BEGINNERS = Profile("beginners", [Pool("up to 1200", doubles=[DoubleRange("skill", max=1200, exclude="max")])])
MASTERS = Profile("masters", [Pool("from 1200 on", doubles=[DoubleRange("skill", min=1200)])])


def duel(waiting: Waiting) -> Iterator[Match]:
    """The oldest first, in pairs; an odd one waits for the next."""
    for pair in zip(waiting.tickets[::2], waiting.tickets[1::2], strict=False):
        yield Match(pair)


def assign(matches: Sequence[Match]) -> list[Group]:
    """Where game servers would be started, or found."""
    return [match.assigned(f"{match.profile}.example.com:7777") for match in matches]


async def play(k: kizuna.Kizuna, name: str, skill: float, patience_s: float) -> str:
    ticket = await k.match.create_ticket(doubles={"skill": skill})
    try:
        assignment = await k.match.assignment(ticket.id, timeout_s=patience_s)
    except TimeoutError:
        await k.match.delete_ticket(ticket.id)
        return f"{name} gave up"
    return f"{name} plays at {assignment.connection}"


async def main() -> None:
    async with kizuna.connect() as k:
        backend = k.match.backend(assign)
        backend.add(BEGINNERS, duel)
        backend.add(MASTERS, duel)
        async with kizuna.running(backend):
            players = {"Ana": 1850.0, "Ben": 640.0, "Chi": 1790.0, "Dan": 700.0}
            ends = await asyncio.gather(*(play(k, name, skill, 30) for name, skill in players.items()))
            # She comes when all others have gone to play.
            ends.append(await play(k, "Eve", 900.0, 0.5))
    print(*ends, sep="\n")


if __name__ == "__main__":
    kizuna.run(main())
