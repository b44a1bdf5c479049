"""Who decides which of the proposed matches stand: a Python function, or a service of Open Match's kind."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Protocol

import grpc.aio

from kizuna.errors import EvaluatorFailed
from kizuna.match.calling import name_of, result_of
from kizuna.match.openmatch import evaluator_pb2, evaluator_pb2_grpc

if TYPE_CHECKING:
    from kizuna.match.director.channels import Channels
    from kizuna.match.director.proposals import Proposal
    from kizuna.match.matches import Evaluator, Match


class Judge(Protocol):
    name: str

    def ids_of(self, proposals: AsyncIterator[Proposal]) -> AsyncGenerator[str, None]:
        """The ids of the matches that stand, as soon as it is sure of them. EvaluatorFailed if it cannot be said."""


class LocalJudge:
    """A function of this process: it decides once it has seen all. A proposal whose score cannot be read does not
    stand, and is not shown to it."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self.name = name_of(evaluator)

    async def ids_of(self, proposals: AsyncIterator[Proposal]) -> AsyncGenerator[str, None]:
        seen = [proposal async for proposal in proposals if proposal.has_readable_score]
        for match_id in await self._decide([proposal.match for proposal in seen if not proposal.is_withdrawn]):
            yield match_id

    async def _decide(self, matches: list[Match]) -> list[str]:
        try:
            return await result_of(self._evaluator(matches))
        except Exception as error:
            raise EvaluatorFailed(self.name, f"{type(error).__name__}: {error}") from error


class RemoteJudge:
    """An Evaluator service; it sees all proposals as they were sent, while they are, and decides what a score is."""

    def __init__(self, channels: Channels, address: str) -> None:
        self._channels = channels
        self.name = address

    async def ids_of(self, proposals: AsyncIterator[Proposal]) -> AsyncGenerator[str, None]:
        with self._channels.to(self.name) as channel:
            stub = evaluator_pb2_grpc.EvaluatorStub(channel)  # type: ignore[no-untyped-call]
            call = stub.Evaluate(_requests(proposals))
            try:
                async for response in call:
                    yield response.match_id
            except grpc.aio.AioRpcError as error:
                raise EvaluatorFailed(self.name, f"{error.code().name}: {error.details()}") from error
            finally:
                call.cancel()


async def _requests(proposals: AsyncIterator[Proposal]) -> AsyncGenerator[evaluator_pb2.EvaluateRequest, None]:
    async for proposal in proposals:
        yield evaluator_pb2.EvaluateRequest(match=proposal.message)
