"""MatchFunction: a match function of ours, for a director of Open Match's kind elsewhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from grpc import StatusCode

from kizuna.errors import FunctionFailed, WrongValue
from kizuna.match.calling import name_of, result_of
from kizuna.match.matches import Match, Waiting
from kizuna.match.openmatch import matchfunction_pb2
from kizuna.match.pools import EVERYONE, Profile, sorted_into
from kizuna.match.serving.rpcs import Rpc
from kizuna.match.serving.statuses import BadCall

if TYPE_CHECKING:
    from kizuna.match.matches import MatchFunction
    from kizuna.match.matchmaking import Matchmaking

SERVICE = "openmatch.MatchFunction"


class FunctionCalls:
    """Shows the function the tickets and backfills that wait, and proposes what it makes of them; takes nothing.

    `now_s` is the server's time, as `k.store.time_s` tells it.
    """

    def __init__(
        self, mm: Matchmaking, function: MatchFunction, now_s: Callable[[], Awaitable[float]], *, name: str = ""
    ) -> None:
        self._mm = mm
        self._function = function
        self._now_s = now_s
        self._name = name or name_of(function)

    def rpcs(self) -> list[Rpc]:
        run = matchfunction_pb2
        http = ("POST", "/v1/matchfunction:run")
        return [Rpc(SERVICE, "Run", run.RunRequest, run.RunResponse, self.run, streams=True, http=http)]

    async def run(self, request: matchfunction_pb2.RunRequest) -> AsyncGenerator[matchfunction_pb2.RunResponse, None]:
        waiting = await self._waiting(_profile_of(request))
        for match in await self._matches(waiting):
            match.profile = match.profile or waiting.profile.name
            match.function = match.function or self._name
            yield matchfunction_pb2.RunResponse(proposal=match.to_message())

    async def _waiting(self, profile: Profile) -> Waiting:
        tickets = await self._mm.query_tickets(EVERYONE)
        backfills = await self._mm.query_backfills(EVERYONE)
        pools, free = sorted_into(profile.pools, tickets), sorted_into(profile.pools, backfills)
        return Waiting(profile, pools, await self._now_s(), free)

    async def _matches(self, waiting: Waiting) -> Iterable[Match]:
        try:
            return await result_of(self._function(waiting))
        except Exception as error:
            raise FunctionFailed(self._name, f"{type(error).__name__}: {error}") from error


def _profile_of(request: matchfunction_pb2.RunRequest) -> Profile:
    if not request.HasField("profile"):
        raise BadCall(StatusCode.INVALID_ARGUMENT, ".profile is required")
    try:
        return Profile.of(request.profile)
    except WrongValue as wrong:
        raise BadCall(StatusCode.INVALID_ARGUMENT, f".invalid {wrong.name} value") from wrong
