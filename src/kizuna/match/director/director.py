"""The director's side of Open Match as a service: BackendService and QueryService."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kizuna.match.director.backend_calls import BackendCalls
from kizuna.match.director.channels import Channels
from kizuna.match.director.evaluators import Judge, LocalJudge, RemoteJudge
from kizuna.match.director.function_tls import FunctionTls
from kizuna.match.director.query_calls import QueryCalls
from kizuna.match.director.remote_functions import RemoteFunctions
from kizuna.match.director.synchronizer import Synchronizer
from kizuna.match.matches import best_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kizuna.match.matches import Evaluator
    from kizuna.match.matchmaking import Matchmaking
    from kizuna.match.serving.rpcs import Rpc
    from kizuna.metrics import Measure
    from kizuna.settings import MatchSettings


class Director:
    """A Service, to be started before the servers that serve its calls:

    running(director, GrpcServer(director.backend_rpcs(), …), GrpcServer(director.query_rpcs(), …))

    Which matches stand, `evaluator` decides, or the service that is set as match.evaluator, or `best_first`.
    """

    def __init__(self, mm: Matchmaking, settings: MatchSettings, evaluator: Evaluator | None = None) -> None:
        self._tls = FunctionTls(settings)
        self._channels = Channels(self._tls)
        self._synchronizer = Synchronizer(
            mm,
            self._judge(settings, evaluator),
            registration_s=settings.registration_s,
            collection_s=settings.collection_s,
        )
        self._backend = BackendCalls(mm, self._synchronizer, RemoteFunctions(self._channels))
        self._query = QueryCalls(mm, settings.page_size)

    def _judge(self, settings: MatchSettings, evaluator: Evaluator | None) -> Judge:
        if evaluator is None and settings.evaluator:
            return RemoteJudge(self._channels, settings.evaluator)
        return LocalJudge(evaluator or best_first)

    @property
    def under_way(self) -> int:
        """How many FetchMatches calls wait for their matches, or have not fetched them all."""
        return self._synchronizer.under_way

    def measures(self) -> Iterator[Measure]:
        """For /metrics."""
        return self._synchronizer.counts.measures(self.under_way)

    def backend_rpcs(self) -> list[Rpc]:
        return self._backend.rpcs()

    def query_rpcs(self) -> list[Rpc]:
        return self._query.rpcs()

    async def run(self, started: asyncio.Event) -> None:
        # Read now, so that files that cannot be used are told of at the start, and not to somebody who fetches.
        _ = self._tls.credentials
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Ends the fetches that are under way, and closes the connections to functions and evaluator."""
        await self._synchronizer.aclose()
        await self._query.aclose()
        await self._channels.aclose()
