"""FrontendService: what games ask. In the words of minimatch where it answers, else in those of Open Match."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.empty_pb2 import Empty
from grpc import StatusCode

from kizuna.errors import BackfillMissing, IllegalName, TicketMissing
from kizuna.match.openmatch import frontend_pb2, messages_pb2
from kizuna.match.serving.rpcs import Rpc
from kizuna.match.serving.statuses import BadCall
from kizuna.match.tickets import Assignment

if TYPE_CHECKING:
    from kizuna.match.matchmaking import Matchmaking

SERVICE = "openmatch.FrontendService"
_TICKETS = "/v1/frontendservice/tickets"
_TICKET = _TICKETS + "/{ticket_id}"
_BACKFILLS = "/v1/frontendservice/backfills"
_BACKFILL = _BACKFILLS + "/{backfill_id}"


class FrontendCalls:
    """An id that no key could have is that of nothing: what asks for it is told so, what removes it has succeeded."""

    def __init__(self, mm: Matchmaking) -> None:
        self._mm = mm

    def rpcs(self) -> list[Rpc]:
        f, m, rpc = frontend_pb2, messages_pb2, partial(Rpc, SERVICE)
        return [
            rpc("CreateTicket", f.CreateTicketRequest, m.Ticket, self.create_ticket, http=("POST", _TICKETS)),
            rpc("DeleteTicket", f.DeleteTicketRequest, Empty, self.delete_ticket, http=("DELETE", _TICKET)),
            rpc("GetTicket", f.GetTicketRequest, m.Ticket, self.get_ticket, http=("GET", _TICKET)),
            rpc(
                "WatchAssignments",
                f.WatchAssignmentsRequest,
                f.WatchAssignmentsResponse,
                self.watch_assignments,
                streams=True,
                endless=True,
                http=("GET", f"{_TICKET}/assignments"),
            ),
            rpc("DeindexTicket", f.DeindexTicketRequest, f.DeindexTicketResponse, self.deindex_ticket),
            rpc("CreateBackfill", f.CreateBackfillRequest, m.Backfill, self.create_backfill, http=("POST", _BACKFILLS)),
            rpc("DeleteBackfill", f.DeleteBackfillRequest, Empty, self.delete_backfill, http=("DELETE", _BACKFILL)),
            rpc("GetBackfill", f.GetBackfillRequest, m.Backfill, self.get_backfill, http=("GET", _BACKFILL)),
            rpc(
                "UpdateBackfill",
                f.UpdateBackfillRequest,
                m.Backfill,
                self.update_backfill,
                http=("PATCH", _BACKFILLS),
            ),
            rpc(
                "AcknowledgeBackfill",
                f.AcknowledgeBackfillRequest,
                f.AcknowledgeBackfillResponse,
                self.acknowledge_backfill,
                http=("POST", f"{_BACKFILL}/acknowledge"),
            ),
        ]

    # tickets

    async def create_ticket(self, request: frontend_pb2.CreateTicketRequest) -> messages_pb2.Ticket:
        if not request.HasField("ticket"):
            raise _refused(".ticket is required")
        wanted = request.ticket
        if wanted.HasField("assignment"):
            raise _refused("tickets cannot be created with an assignment")
        if wanted.HasField("create_time"):
            raise _refused("tickets cannot be created with create time set")
        return (await self._mm.create_from(wanted)).message

    async def get_ticket(self, request: frontend_pb2.GetTicketRequest) -> messages_pb2.Ticket:
        id_ = _ticket_id(request)
        try:
            return (await self._mm.get_ticket(id_)).message
        except IllegalName as error:
            raise TicketMissing(id_) from error

    async def delete_ticket(self, request: frontend_pb2.DeleteTicketRequest) -> Empty:
        id_ = _ticket_id(request)
        with suppress(IllegalName):
            await self._mm.delete_ticket(id_)
        return Empty()

    async def deindex_ticket(self, request: frontend_pb2.DeindexTicketRequest) -> frontend_pb2.DeindexTicketResponse:
        id_ = _ticket_id(request)
        with suppress(IllegalName):
            await self._mm.deindex_ticket(id_)
        return frontend_pb2.DeindexTicketResponse()

    async def watch_assignments(
        self, request: frontend_pb2.WatchAssignmentsRequest
    ) -> AsyncIterator[frontend_pb2.WatchAssignmentsResponse]:
        id_ = _ticket_id(request)
        try:
            async with aclosing(self._mm.watch_assignments(id_)) as assignments:
                async for assignment in assignments:
                    yield frontend_pb2.WatchAssignmentsResponse(assignment=assignment.message)
        except (TicketMissing, IllegalName) as error:
            # minimatch has no words for this, and Open Match writes it large here, as minimatch does not elsewhere.
            raise BadCall(StatusCode.NOT_FOUND, f"Ticket id: {id_} not found") from error

    # backfills

    async def create_backfill(self, request: frontend_pb2.CreateBackfillRequest) -> messages_pb2.Backfill:
        if not request.HasField("backfill"):
            raise _refused(".backfill is required")
        if request.backfill.HasField("create_time"):
            raise _refused("backfills cannot be created with create time set")
        return (await self._mm.create_backfill_from(request.backfill)).message

    async def get_backfill(self, request: frontend_pb2.GetBackfillRequest) -> messages_pb2.Backfill:
        return (await self._mm.get_backfill(request.backfill_id)).message

    async def update_backfill(self, request: frontend_pb2.UpdateBackfillRequest) -> messages_pb2.Backfill:
        if not request.HasField("backfill"):
            raise _refused(".backfill is required")
        if not request.backfill.id:
            raise _refused("backfill ID should exist")
        return (await self._mm.update_backfill_from(request.backfill)).message

    async def delete_backfill(self, request: frontend_pb2.DeleteBackfillRequest) -> Empty:
        id_ = _backfill_id(request)
        with suppress(BackfillMissing):
            await self._mm.delete_backfill(id_)
        return Empty()

    async def acknowledge_backfill(
        self, request: frontend_pb2.AcknowledgeBackfillRequest
    ) -> frontend_pb2.AcknowledgeBackfillResponse:
        id_ = _backfill_id(request)
        if not request.HasField("assignment"):
            raise _refused(".Assignment is required")
        backfill, tickets = await self._mm.acknowledge_backfill(id_, Assignment.of(request.assignment))
        messages = [ticket.message for ticket in tickets]
        return frontend_pb2.AcknowledgeBackfillResponse(backfill=backfill.message, tickets=messages)


def _ticket_id(request: Any) -> str:
    if not request.ticket_id:
        raise _refused("invalid ticket_id")
    return str(request.ticket_id)


def _backfill_id(request: Any) -> str:
    if not request.backfill_id:
        raise _refused(".BackfillId is required")
    return str(request.backfill_id)


def _refused(text: str) -> BadCall:
    return BadCall(StatusCode.INVALID_ARGUMENT, text)
