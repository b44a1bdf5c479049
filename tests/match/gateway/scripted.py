"""Calls that do what a test tells them to, so that the gateway can be seen with nothing behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kizuna.errors import OutOfMemory, TicketMissing
from kizuna.match.gateway import Gateway
from kizuna.match.openmatch import frontend_pb2, messages_pb2
from kizuna.match.serving.rpcs import Rpc
from kizuna.service import running
from kizuna.settings import MatchSettings

SERVICE = "openmatch.Scripted"


class Scripted:
    """What a call does is up to the id that it is made with."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        """Calls for "slow" wait for it."""
        self.says: asyncio.Queue[str] = asyncio.Queue()
        """What whoever watches is told."""
        self.watching = 0
        self.created: list[messages_pb2.Ticket] = []

    def rpcs(self) -> list[Rpc]:
        f, m = frontend_pb2, messages_pb2
        one, request, response = "/v1/things/{ticket_id}", f.WatchAssignmentsRequest, f.WatchAssignmentsResponse
        return [
            Rpc(SERVICE, "Create", f.CreateTicketRequest, m.Ticket, self.create, http=("POST", "/v1/things")),
            Rpc(SERVICE, "Get", f.GetTicketRequest, m.Ticket, self.get, http=("GET", one)),
            Rpc(SERVICE, "Hidden", f.GetTicketRequest, m.Ticket, self.get),
            Rpc(
                SERVICE, "Watch", request, response, self.watch,
                streams=True, endless=True, http=("GET", f"{one}/watch"),
            ),
            Rpc(SERVICE, "List", request, response, self.list, streams=True, http=("POST", f"{one}:list")),
        ]  # fmt: skip

    async def create(self, request: Any) -> messages_pb2.Ticket:
        ticket: messages_pb2.Ticket = request.ticket
        self.created.append(ticket)
        return ticket

    async def get(self, request: Any) -> messages_pb2.Ticket:
        match request.ticket_id:
            case str(id_) if id_.startswith("missing"):
                raise TicketMissing(id_)
            case "full":
                raise OutOfMemory("no room", "10.9.9.9:6379", "buy more")
            case "boom":
                raise RuntimeError("the secret of the house")
            case "slow":
                await self.go_on.wait()
            case "game":
                ticket = messages_pb2.Ticket(id="game")
                ticket.extensions["skin"].type_url = "type.googleapis.com/game.Skin"
                return ticket
        return messages_pb2.Ticket(id=request.ticket_id)

    async def watch(self, request: Any) -> AsyncIterator[Any]:
        self.watching += 1
        try:
            if request.ticket_id == "missing":
                raise TicketMissing("missing")
            while True:
                said = await self.says.get()
                if said == "gone":
                    raise TicketMissing(request.ticket_id)
                yield _told(said)
        finally:
            self.watching -= 1

    async def list(self, request: Any) -> AsyncIterator[Any]:
        """As many as the id says, and then, if it says so, trouble."""
        number, _, then = request.ticket_id.partition("-")
        for each in range(int(number)):
            yield _told(str(each))
        if then == "slow":
            await self.go_on.wait()
        if then == "boom":
            raise RuntimeError("the secret of the house")


def _told(connection: str) -> Any:
    return frontend_pb2.WatchAssignmentsResponse(assignment=messages_pb2.Assignment(connection=connection))


@asynccontextmanager
async def served(scripted: Scripted, settings: MatchSettings | None = None, **more: Any) -> AsyncIterator[Gateway]:
    gateway = Gateway(scripted.rpcs(), settings or MatchSettings(), port=0, **more)
    async with running(gateway):
        yield gateway
