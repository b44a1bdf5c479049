"""BackendService: what directors ask. In Open Match's words."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from grpc import StatusCode

from kizuna.match.matches import Group
from kizuna.match.openmatch import backend_pb2, messages_pb2
from kizuna.match.serving.rpcs import Rpc
from kizuna.match.serving.statuses import BadCall

if TYPE_CHECKING:
    from kizuna.match.director.remote_functions import RemoteFunctions
    from kizuna.match.director.synchronizer import Synchronizer
    from kizuna.match.matchmaking import Matchmaking

SERVICE = "openmatch.BackendService"
_PATH = "/v1/backendservice"

_CAUSES = {
    "missing": backend_pb2.AssignmentFailure.TICKET_NOT_FOUND,
    "assigned": backend_pb2.AssignmentFailure.UNKNOWN,
}


class BackendCalls:
    def __init__(self, mm: Matchmaking, synchronizer: Synchronizer, functions: RemoteFunctions) -> None:
        self._mm = mm
        self._synchronizer = synchronizer
        self._functions = functions

    def rpcs(self) -> list[Rpc]:
        b, rpc = backend_pb2, partial(Rpc, SERVICE)
        return [
            rpc(
                "FetchMatches",
                b.FetchMatchesRequest,
                b.FetchMatchesResponse,
                self.fetch_matches,
                streams=True,
                http=("POST", f"{_PATH}/matches:fetch"),
            ),
            rpc(
                "AssignTickets",
                b.AssignTicketsRequest,
                b.AssignTicketsResponse,
                self.assign_tickets,
                http=("POST", f"{_PATH}/tickets:assign"),
            ),
            rpc(
                "ReleaseTickets",
                b.ReleaseTicketsRequest,
                b.ReleaseTicketsResponse,
                self.release_tickets,
                http=("POST", f"{_PATH}/tickets:release"),
            ),
            rpc(
                "ReleaseAllTickets",
                b.ReleaseAllTicketsRequest,
                b.ReleaseAllTicketsResponse,
                self.release_all_tickets,
                http=("POST", f"{_PATH}/tickets:releaseall"),
            ),
        ]

    async def fetch_matches(
        self, request: backend_pb2.FetchMatchesRequest
    ) -> AsyncGenerator[backend_pb2.FetchMatchesResponse, None]:
        if not request.HasField("config"):
            raise _refused(".config is required")
        if not request.HasField("profile"):
            raise _refused(".profile is required")
        function = self._functions.at(request.config)
        async with aclosing(self._synchronizer.fetch(function, request.profile)) as matches:
            async for match in matches:
                yield backend_pb2.FetchMatchesResponse(match=match)

    async def assign_tickets(self, request: backend_pb2.AssignTicketsRequest) -> backend_pb2.AssignTicketsResponse:
        _check(request.assignments)
        groups = [Group.of(group) for group in request.assignments if group.ticket_ids]
        failures = await self._mm.assign_tickets(groups)
        # In the order in which the tickets were named.
        named = [ticket for group in groups for ticket in group.ticket_ids if ticket in failures]
        return backend_pb2.AssignTicketsResponse(
            failures=[backend_pb2.AssignmentFailure(ticket_id=id_, cause=_CAUSES[failures[id_]]) for id_ in named]
        )

    async def release_tickets(self, request: backend_pb2.ReleaseTicketsRequest) -> backend_pb2.ReleaseTicketsResponse:
        await self._mm.release_tickets(list(request.ticket_ids))
        return backend_pb2.ReleaseTicketsResponse()

    async def release_all_tickets(
        self, _: backend_pb2.ReleaseAllTicketsRequest
    ) -> backend_pb2.ReleaseAllTicketsResponse:
        await self._mm.release_all()
        return backend_pb2.ReleaseAllTicketsResponse()


def _check(groups: Iterable[messages_pb2.AssignmentGroup]) -> None:
    """What Open Match refuses, in its order. No group: nothing to do. Groups of nobody: a mistake."""
    seen: set[str] = set()
    are_there = False
    for group in groups:
        are_there = True
        if not group.HasField("assignment"):
            raise _refused("AssignmentGroup.Assignment is required")
        for ticket in group.ticket_ids:
            if ticket in seen:
                raise _refused(f"Ticket id {ticket} is assigned multiple times in one assign tickets call")
            seen.add(ticket)
    if are_there and not seen:
        raise _refused("AssignmentGroupTicketIds is empty")


def _refused(text: str) -> BadCall:
    return BadCall(StatusCode.INVALID_ARGUMENT, text)
