"""Tickets, assignments and backfills, as programs use them: `k.match`.

    ticket = await k.match.create_ticket(tags=["mode:casual"], doubles={"skill": 1500})
    assignment = await k.match.assignment(ticket.id)

Keys and bytes are those of minimatch, so its frontends and backends may share the server.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from kizuna.errors import BackfillMissing, IllegalName, TicketMissing, WrongValue
from kizuna.match.backend import Backend
from kizuna.match.backfill_steps import BackfillSteps
from kizuna.match.backfills import Backfill
from kizuna.match.drafting import check_size, copied, draft_ticket, encoded
from kizuna.match.giving_back import backend_name
from kizuna.match.openmatch import messages_pb2
from kizuna.match.pools import BY_AGE
from kizuna.match.reports import BackendReport, read_reports
from kizuna.match.server_clock import ServerClock
from kizuna.match.servers import Servers
from kizuna.match.shard import Shard
from kizuna.match.tickets import Assignment, Ticket, fill, new_ticket
from kizuna.match.watching import Watchers
from kizuna.match.xids import is_old
from kizuna.metrics import Measure
from kizuna.store.sharding import roots_for

if TYPE_CHECKING:
    from kizuna.coordination.processes.membership import Registration
    from kizuna.match.matches import Assigner, Evaluator, Group, Match
    from kizuna.match.pools import Pool
    from kizuna.match.values import Value
    from kizuna.store.client import Store

Join = Callable[[], Awaitable["Registration"]]


class Matchmaking:
    """`k.match`. `join` makes this process a member of the fleet: what one has taken is given back when it dies."""

    def __init__(self, store: Store, process: str, join: Join) -> None:
        self._store, self._process, self._join = store, process, join
        self._settings = store.settings.match
        self.roots = roots_for(store, "match", store.settings.roots.match, self._settings.shards)
        self.servers = Servers(store)
        self.shards = [Shard(self.servers, prefix, self.roots) for prefix in self.roots.all]
        self._by_prefix = {shard.prefix: shard for shard in self.shards}
        self._backfills = {shard.prefix: BackfillSteps(self.servers, shard) for shard in self.shards}
        self._clock = ServerClock(store)
        self.watchers = Watchers(self.servers, self.shards)
        self._backends = 0
        self.created = 0
        """Tickets that this process has created."""

    # -- tickets ------------------------------------------------------------------------------------------

    async def create_ticket(
        self,
        *,
        tags: Iterable[str] = (),
        doubles: Mapping[str, float] | None = None,
        strings: Mapping[str, str] | None = None,
        extensions: Mapping[str, Value] | None = None,
        persistent: Mapping[str, Value] | None = None,
        ttl_s: float | None = None,
    ) -> Ticket:
        """Wait for a match from now on, for `match.ticket_s` unless told otherwise. WrongValue for what no ticket can
        hold, TooLarge above `match.largest_bytes`."""
        wanted = new_ticket(tags=tags, doubles=doubles, strings=strings, extensions=extensions, persistent=persistent)
        return await self._create(wanted, ttl_s)

    async def create_from(self, wanted: messages_pb2.Ticket, *, ttl_s: float | None = None) -> Ticket:
        """The same from a message: id and times in it are replaced. How long it waits, it may say itself, as
        `persistent_field` "ttl" in nanoseconds."""
        return await self._create(copied(wanted, messages_pb2.Ticket), ttl_s)

    async def _create(self, message: messages_pb2.Ticket, ttl_s: float | None) -> Ticket:
        shard = self._shard_for(message)
        now_ns = await self._clock.now_ns()
        body, ttl_ms = draft_ticket(message, shard.new_id(), now_ns, ttl_s, self._settings)
        await shard.create(message.id, body, ttl_ms)
        self.created += 1
        return Ticket(message)

    async def get_ticket(self, id_: str) -> Ticket:
        """With its assignment, if it has one. TicketMissing."""
        shard = self._shard_of(id_)
        body, assignment = await asyncio.gather(shard.read(id_), shard.read_assignment(id_))
        # What does not hold its own id is somebody else's value, and no ticket; nor is a backfill.
        ticket = None if body is None or id_.encode() not in body else Ticket.if_readable(body)
        if ticket is None or ticket.id not in (id_, ""):
            raise TicketMissing(id_)
        if assignment is not None:
            ticket.message.assignment.CopyFrom(Assignment.decode(assignment).message)
        return ticket

    async def delete_ticket(self, id_: str) -> None:
        """The ticket and its assignment, if there are any; who waits for it is told that it is gone."""
        await self._shard_of(id_).delete(id_)

    async def deindex_ticket(self, id_: str) -> None:
        """It is matched no more, and stays readable."""
        shard = self._shard_of(id_)
        shard.body(id_)
        await shard.deindex([id_])

    async def count(self) -> int:
        """How many wait or are being matched."""
        return sum(await asyncio.gather(*(shard.count() for shard in self.shards)))

    # -- waiting for an assignment ------------------------------------------------------------------------

    def watch_assignments(self, id_: str) -> AsyncGenerator[Assignment]:
        """The assignment, as soon as there is one, and each that differs from the one before. TicketMissing when the
        ticket is gone. Close it when you have what you wanted: `async with contextlib.aclosing(…)`, or leave it to
        the end of the program."""
        return self.watchers.watch(self._shard_of(id_), id_)

    async def assignment(self, id_: str, *, timeout_s: float | None = None) -> Assignment:
        """Wait for it. TimeoutError, or TicketMissing when the ticket is gone."""
        async with asyncio.timeout(timeout_s), aclosing(self.watch_assignments(id_)) as assignments:
            return await anext(assignments)

    # -- who waits ----------------------------------------------------------------------------------------

    async def query_tickets(self, pool: Pool) -> list[Ticket]:
        """Those of a pool that wait and that nobody is matching, the oldest first."""
        found = await asyncio.gather(*(self._waiting_in(shard) for shard in self.shards))
        tickets = pool.of_all(ticket for tickets in found for ticket in tickets)
        return sorted(tickets, key=BY_AGE)

    async def query_ids(self, pool: Pool) -> list[str]:
        return [ticket.id for ticket in await self.query_tickets(pool)]

    async def query_backfills(self, pool: Pool) -> list[Backfill]:
        """Those of a pool that a game server has acknowledged lately, the oldest first."""
        found = await asyncio.gather(*(steps.alive() for steps in self._backfills.values()))
        backfills = pool.of_all(stored.backfill for some in found for stored in some)
        return sorted(backfills, key=BY_AGE)

    async def _waiting_in(self, shard: Shard) -> list[Ticket]:
        ids = await shard.waiting()
        bodies = await shard.read_all(ids)
        ended = [id_ for id_, body in zip(ids, bodies, strict=True) if body is None and is_old(id_)]
        if ended:
            await shard.deindex(ended, only_ended=True)
        return [ticket for body in bodies if body is not None and (ticket := Ticket.if_readable(body)) is not None]

    # -- matches ------------------------------------------------------------------------------------------

    async def assign_tickets(self, groups: Iterable[Group]) -> dict[str, str]:
        """Each ticket by itself, whether it is being matched or not. Says of those that could not be assigned why:
        "missing", or "assigned" if they have another assignment already. The same one again is fine. TooLarge above
        `match.largest_bytes`, and then nobody is assigned."""
        pairs: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
        failures: dict[str, str] = {}
        for group in groups:
            check_size(group.assignment, self.servers.settings)
            body = group.assignment.encode()
            for id_ in group.ticket_ids:
                try:
                    shard = self._shard_of(id_)
                    shard.body(id_)
                    pairs[shard.prefix].append((id_, body))
                except IllegalName:
                    failures[id_] = "missing"
        for prefix, some in pairs.items():
            words = await self._by_prefix[prefix].assign_each(some)
            for (id_, _), word in zip(some, words, strict=True):
                if word in _FAILURES:
                    failures[id_] = _FAILURES[word]
        return failures

    async def release_tickets(self, ids: Iterable[str]) -> None:
        """Whoever had taken them: others may match them now."""
        if isinstance(ids, str):
            raise WrongValue("ids", repr(ids), "a list of them")
        by_shard: dict[str, list[str]] = defaultdict(list)
        for id_ in ids:
            if not _has_blanks(id_):
                by_shard[self._shard_of(id_).prefix].append(id_)
        for prefix, some in by_shard.items():
            await self._by_prefix[prefix].release(some)

    async def release_all(self) -> None:
        """The same for all that anybody has taken."""
        await asyncio.gather(*(shard.release_all() for shard in self.shards))

    async def propose(self, matches: Sequence[Match]) -> list[Match]:
        """Mark their tickets as being matched, and write their backfills; a match of which a ticket is gone or taken,
        or whose backfill has changed, is dropped, and nothing of it happens. The others are returned."""
        by_shard: dict[str, list[Match]] = defaultdict(list)
        for match in matches:
            prefixes = {self._shard_of(id_).prefix for id_ in match.ticket_ids}
            # Only tickets of one shard can be matched in one step; and what cannot be an id is no ticket of ours.
            if len(prefixes) <= 1 and not any(map(_has_blanks, match.ticket_ids)):
                by_shard[next(iter(prefixes), self.shards[0].prefix)].append(match)
        stand: set[int] = set()
        for prefix, some in by_shard.items():
            outcomes = await self._backfills[prefix].propose(some)
            stand |= {id(match) for match, is_proposed in zip(some, outcomes, strict=True) if is_proposed}
        return [match for match in matches if id(match) in stand]

    def backend(
        self,
        assigner: Assigner | None = None,
        *,
        evaluator: Evaluator | None = None,
        fetch_limit: int | None = None,
        tick_every_s: float | None = None,
        validate: bool = True,
        name: str | None = None,
    ) -> Backend:
        """What makes matches: a service, to which profiles and functions are added. `validate=False` assigns also
        groups of which a ticket is gone, as minimatch can be told to. WrongValue for a limit or a pace of nothing,
        IllegalName for a name that no key can have."""
        self._backends += 1
        full_name = backend_name(self._process, name or str(self._backends))
        # Here, and not when the first ticket is taken.
        self.shards[0].held(full_name, 0)
        fetch_limit = self._settings.fetch_limit if fetch_limit is None else fetch_limit
        tick_every_s = self._settings.tick_every_s if tick_every_s is None else tick_every_s
        if fetch_limit < 1:
            raise WrongValue("fetch_limit", str(fetch_limit), "1 or more")
        if not tick_every_s > 0:
            raise WrongValue("tick_every_s", str(tick_every_s), "more than 0")
        return Backend(
            self.shards,
            self._backfills,
            full_name,
            self._join,
            assigner,
            evaluator=evaluator,
            fetch_limit=fetch_limit,
            tick_every_s=tick_every_s,
            validate=validate,
            store=self._store,
        )

    async def backends_report(self) -> list[BackendReport]:
        """What each backend that is at work found when it last looked."""
        return [report for shard in self.shards for report in await read_reports(self._store, shard.backends)]

    # -- backfills ----------------------------------------------------------------------------------------

    async def create_backfill(
        self,
        *,
        tags: Iterable[str] = (),
        doubles: Mapping[str, float] | None = None,
        strings: Mapping[str, str] | None = None,
        extensions: Mapping[str, Value] | None = None,
        persistent: Mapping[str, Value] | None = None,
    ) -> Backfill:
        """Free places in a running match. Whoever runs it has to acknowledge it every now and then."""
        wanted = messages_pb2.Backfill()
        fill(wanted, tags, doubles, strings, extensions, persistent)
        return await self.create_backfill_from(wanted)

    async def create_backfill_from(self, wanted: messages_pb2.Backfill) -> Backfill:
        message = copied(wanted, messages_pb2.Backfill)
        shard = self._shard_for(message)
        message.id, message.generation = shard.new_id(), 1
        message.create_time.FromNanoseconds(await self._clock.now_ns())
        encoded(message, "backfill", self._settings)
        await self._backfills[shard.prefix].create(message)
        return Backfill(message)

    async def get_backfill(self, id_: str) -> Backfill:
        """BackfillMissing."""
        return (await self._backfill_steps(id_).read(id_)).backfill

    async def update_backfill_from(self, wanted: messages_pb2.Backfill) -> Backfill:
        """Its next generation, which says what `wanted` says; tickets that waited for it go back to the others.
        BackfillMissing, BackfillExpired."""
        message = copied(wanted, messages_pb2.Backfill)
        encoded(message, "backfill", self._settings)
        return Backfill(await self._backfill_steps(message.id).update(message.id, message))

    async def delete_backfill(self, id_: str) -> None:
        """Its tickets go back to the others. One that is gone already is fine."""
        await self._backfill_steps(id_).delete(id_)

    async def acknowledge_backfill(self, id_: str, assignment: Assignment) -> tuple[Backfill, list[Ticket]]:
        """The game server lives: the tickets that wait for it are assigned to it, and those who come are returned.
        BackfillMissing, BackfillExpired."""
        check_size(assignment, self.servers.settings)
        stored = await self._backfill_steps(id_).acknowledge(id_)
        shard, body = self._shard_of(id_), assignment.encode()
        words = await shard.assign_each([(ticket, body) for ticket in stored.ticket_ids])
        # Who was assigned elsewhere meanwhile does not come.
        coming = [ticket for ticket, word in zip(stored.ticket_ids, words, strict=True) if word not in _FAILURES]
        tickets = []
        for found in await shard.read_all(coming):
            if found is not None and (ticket := Ticket.if_readable(found)) is not None:
                ticket.message.assignment.CopyFrom(assignment.message)
                tickets.append(ticket)
        return stored.backfill, tickets

    # -- about itself -------------------------------------------------------------------------------------

    def measures(self) -> Iterator[Measure]:
        """For /metrics: of those who create tickets and wait for assignments. Backends have their own."""
        yield Measure("counter", "kizuna_match_tickets_created_total", "Tickets that were created here.", self.created)
        watchers = self.watchers
        yield Measure("gauge", "kizuna_match_watchers", "Those who wait for an assignment here.", watchers.number)
        yield Measure("counter", "kizuna_match_assignments_told_total", "Assignments that were told.", watchers.told)
        text = "Whether assignments have to be looked for, as the server does not announce them."
        yield Measure("gauge", "kizuna_match_assignments_polled", text, int(watchers.is_polling))

    # -- the end ------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        await self.watchers.aclose()
        await self.servers.aclose()

    # -- inside -------------------------------------------------------------------------------------------

    def _shard_of(self, id_: str) -> Shard:
        return self.shards[0] if len(self.shards) == 1 else self._by_prefix[self.roots.of(id_)]

    def _shard_for(self, wanted: messages_pb2.Ticket | messages_pb2.Backfill) -> Shard:
        if len(self.shards) == 1:
            return self.shards[0]
        partition = wanted.search_fields.string_args.get(self._settings.partition_arg, "")
        return self._by_prefix[self.roots.of(partition)]

    def _backfill_steps(self, id_: str) -> BackfillSteps:
        shard = self._shard_of(id_)
        try:
            shard.body(id_)
        except IllegalName:
            raise BackfillMissing(id_) from None
        return self._backfills[shard.prefix]


_FAILURES = {"missing": "missing", "other": "assigned"}


def _has_blanks(id_: str) -> bool:
    return not id_ or any(character.isspace() for character in id_)
