"""An evaluator at work on the proposals of a cycle: it is shown them as they come, and what it keeps is known as soon
as it says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING

from kizuna.errors import EvaluatorFailed, FunctionFailed

if TYPE_CHECKING:
    from kizuna.match.director.evaluators import Judge
    from kizuna.match.director.proposals import Proposal


class Judging:
    """`limit_s` is how long the evaluator may take once it has been shown all there is."""

    def __init__(self, judge: Judge, limit_s: float) -> None:
        self._judge, self._limit_s = judge, limit_s
        self._shown: asyncio.Queue[Proposal | None] = asyncio.Queue()
        self._said: asyncio.Queue[str | Exception | None] = asyncio.Queue()
        self._by_id: dict[str, Proposal] = {}
        self._kept: dict[str, Proposal] = {}
        self._limit: asyncio.Timeout | None = None
        self._ends_at: float | None = None
        self._is_over = False

    @property
    def rejected(self) -> int:
        """Proposals that it did not keep, or could not decide about."""
        counted = sum(not proposal.is_withdrawn for proposal in self._by_id.values())
        return counted - sum(not proposal.is_withdrawn for proposal in self._kept.values())

    def show(self, proposal: Proposal) -> None:
        other = self._by_id.get(proposal.match.id)
        if other is None or other.is_withdrawn:
            self._by_id[proposal.match.id] = proposal
            self._shown.put_nowait(proposal)
            return
        # By its id a match is kept: nobody could say which of the two that is.
        addresses = " and ".join(dict.fromkeys((other.address, proposal.address)))
        reason = f'multiple match functions used same match_id: "{proposal.match.id}"'
        self._said.put_nowait(FunctionFailed(addresses, reason))

    def end(self) -> None:
        """No more will be shown."""
        self._shown.put_nowait(None)
        self._ends_at = asyncio.get_running_loop().time() + self._limit_s
        if self._limit is not None:
            self._limit.reschedule(self._ends_at)

    async def kept(self) -> AsyncGenerator[list[Proposal], None]:
        """Those that stand, in the order of the evaluator, some at a time. EvaluatorFailed or FunctionFailed if that
        cannot be said; what was said before stands."""
        deciding = asyncio.ensure_future(self._decide())
        try:
            while not self._is_over:
                if some := self._chosen(await self._heard()):
                    yield some
        finally:
            deciding.cancel()
            await asyncio.wait([deciding])

    async def _decide(self) -> None:
        try:
            async with asyncio.timeout_at(self._ends_at) as self._limit:
                async for match_id in self._judge.ids_of(self._proposals()):
                    self._said.put_nowait(match_id)
            self._said.put_nowait(None)
        except TimeoutError:
            self._said.put_nowait(EvaluatorFailed(self._judge.name, f"it took longer than {self._limit_s:g}s"))
        except asyncio.CancelledError:
            # gRPC raises it, too, when it was not us who were cancelled but the channel that was closed.
            self._said.put_nowait(EvaluatorFailed(self._judge.name, "the connection to it was closed"))
            raise
        except Exception as error:
            self._said.put_nowait(error)

    async def _proposals(self) -> AsyncGenerator[Proposal, None]:
        while (proposal := await self._shown.get()) is not None:
            if not proposal.is_withdrawn:
                yield proposal

    async def _heard(self) -> list[str]:
        """What was said since, once there is something. What was said just before a failure does not count."""
        words = [await self._said.get()]
        while not self._said.empty():
            words.append(self._said.get_nowait())
        for word in words:
            if isinstance(word, Exception):
                raise word
        self._is_over = words[-1] is None
        return [word for word in words if isinstance(word, str)]

    def _chosen(self, ids: Iterable[str]) -> list[Proposal]:
        """EvaluatorFailed if it named one twice, or one that is not."""
        chosen = [self._choose(match_id) for match_id in ids]
        return [proposal for proposal in chosen if not proposal.is_withdrawn]

    def _choose(self, match_id: str) -> Proposal:
        if match_id not in self._by_id:
            reason = f'evaluator returned match_id "{match_id}" which does not correspond to its any match in its input'
            raise EvaluatorFailed(self._judge.name, reason)
        if match_id in self._kept:
            raise EvaluatorFailed(self._judge.name, f'evaluator returned same match_id twice: "{match_id}"')
        self._kept[match_id] = self._by_id[match_id]
        return self._kept[match_id]
