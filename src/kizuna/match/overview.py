"""Who is where: for people who look on, and not for those who make matches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kizuna.errors import TicketMissing
from kizuna.match import keys
from kizuna.match.pools import BY_AGE
from kizuna.match.tickets import Assignment, Ticket
from kizuna.store.events.feeds import LookAgain
from kizuna.store.scanning.families import batches_of_names, glob_of, names_in

if TYPE_CHECKING:
    from kizuna.match.matchmaking import Matchmaking
    from kizuna.match.pools import Pool
    from kizuna.match.shard import Shard
    from kizuna.store.events.feeds import Change, Feed

State = Literal["waiting", "pending", "assigned", "deindexed"]
"""pending: somebody is matching it. deindexed: it is there, and nobody will match it."""


@dataclass(frozen=True)
class Seen:
    ticket: Ticket
    state: State
    pending_since: float | None = None
    """In seconds since the epoch."""


@dataclass(frozen=True)
class Crowd:
    """Who is in a pool at one moment."""

    waiting: int
    pending: int
    oldest_s: float | None
    """How long the one has waited that has waited longest; None if nobody does."""
    p50_s: float | None
    p99_s: float | None


class Overview:
    def __init__(self, matchmaking: Matchmaking) -> None:
        self._shards, self._servers, self._roots = matchmaking.shards, matchmaking.servers, matchmaking.roots
        self._get = matchmaking.get_ticket

    async def tickets(self) -> list[Seen]:
        """Those that wait or are being matched, the oldest first."""
        found = await asyncio.gather(*map(self._indexed, self._shards))
        return _oldest_first(seen for some in found for seen in some)

    async def assigned(self) -> list[Seen]:
        """Those whose assignment can still be read, the oldest first. Goes through all keys of the server."""
        store = await self._servers.assignments()
        found: dict[str, None] = {}
        async for names in batches_of_names(store, self._roots, keys.ASSIGNMENT):
            found |= dict.fromkeys(name["ticket"] for name in names)
        seen = await asyncio.gather(*map(self._one_assigned, found))
        return _oldest_first(filter(None, seen))

    async def one(self, id_: str) -> Seen:
        """TicketMissing if it is not there."""
        ticket = await self._get(id_)
        if ticket.assignment is not None:
            return Seen(ticket, "assigned")
        for shard in self._shards:
            if await self._servers.main.call("SISMEMBER", shard.all_tickets, id_):
                since = await shard.pending_since(id_)
                return Seen(ticket, "waiting" if since is None else "pending", since)
        return Seen(ticket, "deindexed")

    @asynccontextmanager
    async def assignments(self) -> AsyncIterator[AsyncIterator[tuple[str, Assignment] | LookAgain]]:
        """All, as they are made; entered once none will be missed without a LookAgain."""
        store = await self._servers.assignments()
        async with store.events.watch(glob_of(keys.ASSIGNMENT, self._roots)) as changes:
            yield self._followed(changes)

    async def _followed(self, changes: Feed[Change]) -> AsyncIterator[tuple[str, Assignment] | LookAgain]:
        async for change in changes:
            if isinstance(change, LookAgain):
                yield change
            elif (told := await self._told(change.key)) is not None:
                yield told

    async def _told(self, key: str) -> tuple[str, Assignment] | None:
        """None for one that is gone again."""
        names = names_in(keys.ASSIGNMENT, self._roots, key)
        body = await (await self._servers.assignments()).get(key) if names else None
        return None if names is None or body is None else (names["ticket"], Assignment.decode(body))

    async def _indexed(self, shard: Shard) -> list[Seen]:
        pending, ids = await shard.pending(), await shard.indexed()
        bodies = await shard.read_all(ids)
        tickets = (Ticket.if_readable(body) for body in bodies if body is not None)
        return [
            Seen(ticket, "pending" if ticket.id in pending else "waiting", pending.get(ticket.id))
            for ticket in tickets
            if ticket is not None
        ]

    async def _one_assigned(self, id_: str) -> Seen | None:
        try:
            return Seen(await self._get(id_), "assigned")
        except TicketMissing:
            # The two are gone at about the same time.
            return None


def crowd_of(pool: Pool, seen: Iterable[Seen], now_s: float) -> Crowd:
    in_it = [one for one in seen if pool.takes(one.ticket)]
    waits = sorted(one.ticket.waited_s(now_s) for one in in_it if one.state == "waiting")
    pending = sum(one.state == "pending" for one in in_it)
    return Crowd(len(waits), pending, waits[-1] if waits else None, _quantile(waits, 0.5), _quantile(waits, 0.99))


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


def _oldest_first(seen: Iterable[Seen]) -> list[Seen]:
    return sorted(seen, key=lambda one: BY_AGE(one.ticket))
