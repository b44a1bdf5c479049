"""What becomes of one batch of tickets.

    functions ──> evaluator ──┬── kept ──> assigner ──> assigned, each match or nothing of it
                              └── the rest goes back, before the assigner is asked

Whatever fails gives back its own tickets and no others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from kizuna.errors import WrongValue
from kizuna.match.backend.counts import Counts, PoolState
from kizuna.match.backend.tick import Added, Tick
from kizuna.match.backfills import Backfill
from kizuna.match.calling import result_of
from kizuna.match.drafting import check_size
from kizuna.match.matches import Assigner, Evaluator, Group, Match, Waiting, without_overlaps
from kizuna.match.pools import BY_AGE, sorted_into

if TYPE_CHECKING:
    from kizuna.match.backend.batch import Batch
    from kizuna.match.backend.cache import TicketCache
    from kizuna.match.backfill_steps import BackfillSteps
    from kizuna.match.pools import Profile
    from kizuna.match.shard import Shard
    from kizuna.match.tickets import Ticket

log = logging.getLogger("kizuna.match")


class OneTick:
    def __init__(
        self,
        shard: Shard,
        backfills: BackfillSteps,
        cache: TicketCache,
        counts: Counts,
        batch: Batch,
        added: Sequence[Added],
        evaluator: Evaluator | None,
        *,
        validate: bool,
    ) -> None:
        self.tick = Tick(fetched=len(batch.tickets), busy=batch.busy)
        self._shard, self._backfills, self._cache, self._counts = shard, backfills, cache, counts
        self._batch, self._added, self._evaluator, self._validate = batch, added, evaluator, validate

    async def run(self) -> None:
        matches = await self._evaluate(await self._make_matches(await self._living_backfills()))
        kept = {id_ for match in matches for id_ in match.ticket_ids}
        self.tick.matched = len(kept)
        await asyncio.gather(self._batch.release(self._batch.open - kept), self._settle(matches))

    async def _living_backfills(self) -> list[Backfill]:
        if not await self._backfills.has_any():
            return []
        return sorted((stored.backfill for stored in await self._backfills.alive()), key=BY_AGE)

    # -- matching -----------------------------------------------------------------------------------------

    async def _make_matches(self, backfills: list[Backfill]) -> list[Match]:
        made = await asyncio.gather(*(self._run(added, backfills) for added in self._added))
        return [match for matches in made for match in matches]

    async def _run(self, added: Added, backfills: list[Backfill]) -> list[Match]:
        began = time.perf_counter()
        profile = added.profile
        try:
            waiting = Waiting(
                profile,
                self._pools_of(profile),
                self._batch.now_s,
                sorted_into(profile.pools, backfills) if backfills else {},
            )
            return self._ours(await result_of(added.function(waiting)), added)
        except Exception as error:
            self._fail(f"match function {added.name} of profile {profile.name}", error)
            return []
        finally:
            self._counts.took(profile.name, time.perf_counter() - began)

    def _pools_of(self, profile: Profile) -> dict[str, list[Ticket]]:
        pools = sorted_into(profile.pools, self._batch.tickets)
        for name, tickets in pools.items():
            oldest_s = tickets[0].waited_s(self._batch.now_s) if tickets else 0.0
            self._counts.saw(self._shard.prefix, profile.name, name, PoolState(len(tickets), oldest_s))
        return pools

    def _ours(self, matches: list[Match], added: Added) -> list[Match]:
        """Those of tickets that this tick has taken; what they do not say about themselves is filled in."""
        ours, open_ = [], self._batch.open
        for match in matches:
            _check(match)
            if any(ticket.id not in open_ for ticket in match.tickets):
                log.warning("match of other tickets dropped", extra={"match": match.id, "function": added.name})
                continue
            match.profile = match.profile or added.profile.name
            match.function = match.function or added.name
            match.made_by = added
            ours.append(match)
        return ours

    async def _evaluate(self, matches: list[Match]) -> list[Match]:
        if self._evaluator is not None and matches:
            try:
                stand = set(await result_of(self._evaluator(matches)))
            except Exception as error:
                self._fail("evaluator", error)
                return []
            matches = [match for match in matches if match.id in stand]
        # Also behind an evaluator of somebody else's: whatever it lets pass, no ticket plays twice.
        return without_overlaps(matches)

    def _fail(self, what: str, error: BaseException) -> None:
        log.error("%s failed", what, exc_info=error)
        self._counts.failures += 1
        self.tick.failures.append((f"{what}: {error!r}", error))

    # -- what becomes of them -----------------------------------------------------------------------------

    async def _settle(self, matches: list[Match]) -> None:
        matches = await self._join_backfills(matches)
        by_assigner: dict[Any, list[Match]] = {}
        for match in matches:
            if match.backfill is None or match.allocate:
                by_assigner.setdefault(match.made_by.assigner, []).append(match)
        await asyncio.gather(*(self._assign(assigner, some) for assigner, some in by_assigner.items()))

    async def _join_backfills(self, matches: list[Match]) -> list[Match]:
        joining = [match for match in matches if match.backfill is not None]
        if not joining:
            return matches
        outcomes = await self._backfills.propose(joining, are_ours=True)
        dropped = {id(match) for match, stands in zip(joining, outcomes, strict=True) if not stands}
        for match in joining:
            # They wait for the game server now; unless a server is to be found first.
            if id(match) not in dropped and not match.allocate:
                self._batch.settle(match.ticket_ids)
                self._stands(match)
        await self._batch.release({id_ for match in joining if id(match) in dropped for id_ in match.ticket_ids})
        return [match for match in matches if id(match) not in dropped]

    def _stands(self, match: Match) -> None:
        self.tick.matches.append(match)
        self._counts.matches += 1

    async def _assign(self, assigner: Assigner, matches: list[Match]) -> None:
        ids = {id_ for match in matches for id_ in match.ticket_ids}
        groups = await self._groups_of(assigner, matches, ids)
        assigned = await self._assign_groups(groups) if groups else set()
        assignments = {id_: group.assignment for group in groups for id_ in group.ticket_ids}
        left_out = []
        for match in matches:
            if assigned.issuperset(match.ticket_ids):
                match.assignment = assignments[match.ticket_ids[0]] if match.ticket_ids else None
                self._stands(match)
            else:
                left_out.append(match)
        await self._close_backfills(left_out)
        # A match that the assigner has left out waits on.
        await self._batch.release(ids)

    async def _groups_of(self, assigner: Assigner, matches: list[Match], ids: set[str]) -> list[Group]:
        began = time.perf_counter()
        try:
            return self._of_these(await result_of(assigner(matches)), ids)
        except Exception as error:
            self._fail("assigner", error)
            return []
        finally:
            self._counts.assigner_s.observe(time.perf_counter() - began)

    async def _close_backfills(self, matches: list[Match]) -> None:
        """Those that were opened for matches that have no server: who joined them would wait for nobody."""
        for match in matches:
            if match.backfill is not None and match.backfill.generation == 1:
                await self._backfills.delete(match.backfill.id, with_tickets=False)

    def _of_these(self, found: list[Group | Exception], ids: set[str]) -> list[Group]:
        """The groups of tickets that the assigner was asked about; each of the others is a failure of its own."""
        ours = []
        for group in found:
            try:
                self._check_group(group, ids)
            except Exception as error:
                self._fail("assigner", error)
            else:
                ours.append(cast("Group", group))
        return [group for group in ours if group.ticket_ids]

    def _check_group(self, group: Group | Exception, ids: set[str]) -> None:
        if isinstance(group, Exception):
            raise group
        if not isinstance(group, Group):
            raise WrongValue("what it returned", repr(group), "a Group, as match.assigned(…) makes it")
        foreign = sorted(set(group.ticket_ids) - ids, key=str)
        if foreign:
            raise ValueError(f"tickets {foreign} are in none of the matches that it was given")
        check_size(group.assignment, self._shard.settings)

    async def _assign_groups(self, groups: list[Group]) -> set[str]:
        began = time.perf_counter()
        refused = await self._shard.assign(groups, unchecked=not self._validate)
        self._counts.assign_s.observe(time.perf_counter() - began)
        assigned: set[str] = set()
        for group, in_the_way in zip(groups, refused, strict=True):
            self._counts.proposed += len(group.ticket_ids)
            # Of a refused one, the step has given back those that were there.
            self._batch.settle(group.ticket_ids)
            if in_the_way:
                self._counts.refused += 1
                self._batch.released += len(group.ticket_ids) - len(in_the_way)
                log.info("match not assigned", extra={"tickets": list(group.ticket_ids), "gone": in_the_way})
            else:
                assigned.update(group.ticket_ids)
        self._count_assigned(assigned)
        return assigned

    def _count_assigned(self, assigned: set[str]) -> None:
        self.tick.assigned += len(assigned)
        self._counts.assigned += len(assigned)
        observe, now_s = self._counts.wait_s.observe, self._batch.later_s
        for ticket in self._batch.tickets:
            if ticket.id in assigned:
                observe(ticket.waited_s(now_s))
        self._cache.forget(assigned)


def _check(match: object) -> None:
    """Functions are other people's: what they return may be anything."""
    if not isinstance(match, Match):
        raise WrongValue("a match", repr(match), "a Match")
    # Whatever can be gone through once: it is gone through often.
    match.tickets = list(match.tickets)
    if not (match.backfill is None or isinstance(match.backfill, Backfill)):
        raise WrongValue("the backfill of a match", repr(match.backfill), "a Backfill")
    if match.score is not None:
        match.score = float(match.score)
