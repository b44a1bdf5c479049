"""FetchMatches calls that come together are decided about together.

    join ──> functions run ──registration_s──> no more join ──> all are done, or collection_s is over ──> next cycle
                 │ proposals, as they come                                                                  ↑
                 └───> evaluator ──> take ──> told, as soon as the evaluator keeps one ─────────────────────┘

So the functions of a cycle see what the one before it has left. Over several processes nobody waits for anybody:
the tickets of a match are taken together or not at all.

An evaluator of somebody's own may keep a match while other functions still run. Ours cannot: a better one for the same
tickets may follow, as with Open Match's own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from kizuna.errors import KizunaError
from kizuna.match.director.counts import Counts
from kizuna.match.director.cycles import Call, Cycle
from kizuna.match.director.judging import Judging

if TYPE_CHECKING:
    from kizuna.match.director.evaluators import Judge
    from kizuna.match.director.proposals import Proposal
    from kizuna.match.director.remote_functions import RemoteFunction
    from kizuna.match.matchmaking import Matchmaking
    from kizuna.match.openmatch import messages_pb2

log = logging.getLogger("kizuna.match.director")


class Synchronizer:
    def __init__(self, mm: Matchmaking, judge: Judge, *, registration_s: float, collection_s: float) -> None:
        self._mm = mm
        self._judge = judge
        self.registration_s = registration_s
        self.collection_s = collection_s
        self.turn = asyncio.Lock()
        """Of the cycle that runs; the next ones wait for it."""
        self.counts = Counts()
        self.under_way = 0
        """How many fetch now."""
        self._newest: Cycle | None = None
        self._cycles: dict[asyncio.Task[None], Cycle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def fetch(
        self, function: RemoteFunction, profile: messages_pb2.MatchProfile
    ) -> AsyncGenerator[messages_pb2.Match, None]:
        """The matches of this function that stand; their tickets are taken. Those that nobody fetches, because it is
        closed before, are given back. FunctionFailed if the function did not end well, EvaluatorFailed if nothing
        could be decided."""
        call = Call(function, profile)
        cycle = self._joinable()
        cycle.add(call)
        self.under_way += 1
        try:
            while await call.has_match():
                yield call.kept[0].answer()
                # Whoever asks for the next one has this one.
                call.kept.popleft()
            if call.error is not None:
                raise call.error
        finally:
            self.under_way -= 1
            cycle.leave(call)

    def _joinable(self) -> Cycle:
        if self._newest is None or not self._newest.is_open:
            cycle = self._newest = Cycle(self)
            cycle.task = self.spawn(cycle.run())
            self._cycles[cycle.task] = cycle
            cycle.task.add_done_callback(self._cycles.pop)
        return self._newest

    def judging(self) -> Judging:
        return Judging(self._judge, self.collection_s)

    async def take(self, kept: Sequence[Proposal]) -> list[Proposal]:
        """Those whose tickets were all there to be taken."""
        stand = set(await self._mm.propose([proposal.match for proposal in kept]))
        taken = [proposal for proposal in kept if proposal.match in stand]
        self.counts.taken += len(taken)
        self.counts.dropped += len(kept) - len(taken)
        return taken

    def give_back(self, proposals: Sequence[Proposal]) -> None:
        self.counts.given_back += len(proposals)
        tickets = [ticket for proposal in proposals for ticket in proposal.match.ticket_ids]
        if tickets:
            self.spawn(self._release(tickets))

    async def _release(self, tickets: list[str]) -> None:
        try:
            await self._mm.release_tickets(tickets)
        except KizunaError as error:
            # They come back by themselves, after match.pending_s.
            log.warning("tickets not given back", extra={"tickets": tickets, "error": str(error)})

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """Whoever still fetches is told to do so elsewhere; what is being taken for them is given back when they
        leave."""
        for cycle in list(self._cycles.values()):
            cycle.abandon()
        while self._tasks:
            await asyncio.wait(self._tasks)
