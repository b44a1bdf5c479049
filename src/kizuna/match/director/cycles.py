"""A cycle of the synchronizer, and the calls that are in it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from grpc import StatusCode

from kizuna.errors import FunctionFailed
from kizuna.match.director.proposals import Proposal
from kizuna.match.serving.statuses import BadCall

if TYPE_CHECKING:
    from kizuna.match.director.remote_functions import RemoteFunction
    from kizuna.match.director.synchronizer import Synchronizer
    from kizuna.match.openmatch import messages_pb2

_STOPPING = "the director is stopping, and no other match was made; fetch again elsewhere"


class Call:
    """One FetchMatches: its function, and what comes of it."""

    def __init__(self, function: RemoteFunction, profile: messages_pb2.MatchProfile) -> None:
        self._function, self._profile = function, profile
        self.address = function.address
        self._proposals: list[Proposal] = []
        self.kept: deque[Proposal] = deque()
        """Taken, and not fetched yet."""
        self.error: Exception | None = None
        """What its caller is told behind what was kept."""
        self.is_over = False
        """Nothing more will be kept."""
        self.is_gone = False
        self.task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def run(self, show: Callable[[Call, Proposal], None]) -> None:
        try:
            await self._collect(show)
        except Exception as error:
            # What it had proposed before does not count.
            self.withdraw()
            self.fail(error)

    async def _collect(self, show: Callable[[Call, Proposal], None]) -> None:
        seen: set[str] = set()
        async with aclosing(self._function.run(self._profile)) as proposals:
            async for message in proposals:
                if message.match_id in seen:
                    reason = f'MatchMakingFunction returned same match_id twice: "{message.match_id}"'
                    raise FunctionFailed(self.address, reason)
                seen.add(message.match_id)
                self._proposals.append(Proposal.of(message, self.address))
                show(self, self._proposals[-1])

    async def has_match(self) -> bool:
        """Wait until there is one to fetch. False: there will be none."""
        while not self.kept and not self.is_over:
            self._news.clear()
            await self._news.wait()
        return bool(self.kept)

    def keep(self, proposal: Proposal) -> None:
        self.kept.append(proposal)
        self._news.set()

    def end(self) -> None:
        self.is_over = True
        self._news.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self.end()

    def withdraw(self) -> None:
        """What it has proposed and what nobody has taken yet."""
        for proposal in self._proposals:
            proposal.is_withdrawn = True

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()


class Cycle:
    def __init__(self, synchronizer: Synchronizer) -> None:
        self._synchronizer = synchronizer
        self._judging = synchronizer.judging()
        self._calls: list[Call] = []
        self._call_of: dict[Proposal, Call] = {}
        self._has_begun = False
        self._is_taking = False
        self._is_abandoned = False
        self._began = time.monotonic()
        self.is_open = True
        self.task: asyncio.Task[None]

    def add(self, call: Call) -> None:
        self._calls.append(call)
        if self._has_begun:
            self._start(call)

    def _start(self, call: Call) -> None:
        call.task = self._synchronizer.spawn(call.run(self._show))

    def _show(self, call: Call, proposal: Proposal) -> None:
        self._call_of[proposal] = call
        self._judging.show(proposal)

    def leave(self, call: Call) -> None:
        """Its caller is gone, or has everything. What was taken for it and not fetched goes back."""
        call.is_gone = True
        call.stop()
        call.withdraw()
        self._give_back(call)
        # With nobody left to be told, there is nothing to decide.
        if all(each.is_gone for each in self._calls):
            self.abandon()

    def abandon(self) -> None:
        self.is_open, self._is_abandoned = False, True
        # What is being taken has to be known, to be given back.
        if not self._is_taking:
            self.task.cancel()

    async def run(self) -> None:
        collecting = None
        try:
            async with self._synchronizer.turn:
                self._begin()
                collecting = self._synchronizer.spawn(self._collect())
                await self._settle()
        except asyncio.CancelledError:
            self._fail(BadCall(StatusCode.UNAVAILABLE, _STOPPING))
        except Exception as error:
            self._fail(error)
        finally:
            self.is_open = False
            if collecting is not None:
                collecting.cancel()
            for call in self._calls:
                call.stop()
            self._count()

    def _count(self) -> None:
        if not self._has_begun:
            return
        counts = self._synchronizer.counts
        counts.cycles += 1
        counts.cycle_s.observe(time.monotonic() - self._began)
        counts.rejected += self._judging.rejected
        counts.failed_functions += sum(isinstance(call.error, FunctionFailed) for call in self._calls)

    def _begin(self) -> None:
        self._has_begun = True
        self._began = time.monotonic()
        for call in self._calls:
            if not call.is_gone:
                self._start(call)

    async def _collect(self) -> None:
        await asyncio.sleep(self._synchronizer.registration_s)
        self.is_open = False
        running = {call.task: call for call in self._calls if call.task is not None}
        _, late = await asyncio.wait(running, timeout=self._synchronizer.collection_s)
        for task in late:
            self._cut_off(running[task])
        self._judging.end()

    def _cut_off(self, call: Call) -> None:
        call.stop()
        # What it has proposed until now counts.
        reason = f"context canceled: it took longer than {self._synchronizer.collection_s:g}s (match.collection_s)"
        call.error = FunctionFailed(call.address, reason)

    async def _settle(self) -> None:
        async with aclosing(self._judging.kept()) as some:
            async for kept in some:
                await self._take(kept)
                if self._is_abandoned:
                    break
        for call in self._calls:
            call.end()

    async def _take(self, kept: list[Proposal]) -> None:
        self._is_taking = True
        try:
            taken = await self._synchronizer.take(kept)
        finally:
            self._is_taking = False
        for proposal in taken:
            self._call_of[proposal].keep(proposal)
        for call in self._calls:
            if call.is_gone:
                self._give_back(call)

    def _give_back(self, call: Call) -> None:
        self._synchronizer.give_back(list(call.kept))
        call.kept.clear()

    def _fail(self, error: Exception) -> None:
        for call in self._calls:
            if not call.is_over:
                call.fail(error)
