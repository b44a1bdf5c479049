"""QueryService: what match functions ask. In Open Match's words."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message
from grpc import StatusCode

from kizuna.errors import WrongValue
from kizuna.match.director.shared_reads import SharedReads
from kizuna.match.openmatch import query_pb2
from kizuna.match.pools import EVERYONE, Pool
from kizuna.match.serving.rpcs import Rpc
from kizuna.match.serving.statuses import BadCall

if TYPE_CHECKING:
    from kizuna.match.matchmaking import Matchmaking

SERVICE = "openmatch.QueryService"
_PATH = "/v1/queryservice"
# Unless they are told otherwise, clients take messages of four megabytes; what stands around a ticket fits beside.
_PAGE_BYTES = 3 * 1024 * 1024

T = TypeVar("T")
Query = query_pb2.QueryTicketsRequest | query_pb2.QueryTicketIdsRequest | query_pb2.QueryBackfillsRequest


class QueryCalls:
    """What waits and is in no match, in pages; a pool of nothing is a stream of nothing."""

    def __init__(self, mm: Matchmaking, page_size: int) -> None:
        # Match functions come together, each with some pools: all tickets are read once for all of them.
        self._tickets = SharedReads(lambda: mm.query_tickets(EVERYONE))
        self._backfills = SharedReads(lambda: mm.query_backfills(EVERYONE))
        self._page_size = page_size

    def rpcs(self) -> list[Rpc]:
        q, rpc = query_pb2, partial(Rpc, SERVICE, streams=True)
        return [
            rpc(
                method="QueryTickets",
                request=q.QueryTicketsRequest,
                response=q.QueryTicketsResponse,
                call=self.query_tickets,
                http=("POST", f"{_PATH}/tickets:query"),
            ),
            rpc(
                method="QueryTicketIds",
                request=q.QueryTicketIdsRequest,
                response=q.QueryTicketIdsResponse,
                call=self.query_ticket_ids,
                http=("POST", f"{_PATH}/ticketids:query"),
            ),
            rpc(
                method="QueryBackfills",
                request=q.QueryBackfillsRequest,
                response=q.QueryBackfillsResponse,
                call=self.query_backfills,
                http=("POST", f"{_PATH}/backfills:query"),
            ),
        ]

    async def query_tickets(
        self, request: query_pb2.QueryTicketsRequest
    ) -> AsyncGenerator[query_pb2.QueryTicketsResponse, None]:
        pool = _pool_of(request)
        tickets = pool.of_all(await self._tickets())
        for page in self._pages([ticket.message for ticket in tickets], _size):
            yield query_pb2.QueryTicketsResponse(tickets=page)

    async def query_ticket_ids(
        self, request: query_pb2.QueryTicketIdsRequest
    ) -> AsyncGenerator[query_pb2.QueryTicketIdsResponse, None]:
        pool = _pool_of(request)
        tickets = pool.of_all(await self._tickets())
        for page in self._pages([ticket.id for ticket in tickets], len):
            yield query_pb2.QueryTicketIdsResponse(ids=page)

    async def query_backfills(
        self, request: query_pb2.QueryBackfillsRequest
    ) -> AsyncGenerator[query_pb2.QueryBackfillsResponse, None]:
        pool = _pool_of(request)
        backfills = pool.of_all(await self._backfills())
        for page in self._pages([backfill.message for backfill in backfills], _size):
            yield query_pb2.QueryBackfillsResponse(backfills=page)

    async def aclose(self) -> None:
        await self._tickets.aclose()
        await self._backfills.aclose()

    def _pages(self, found: Sequence[T], bytes_of: Callable[[T], int]) -> Iterator[list[T]]:
        """Of at most so many, and no more bytes than clients take."""
        page: list[T] = []
        size = 0
        for one in found:
            size += bytes_of(one)
            if page and (len(page) == self._page_size or size > _PAGE_BYTES):
                yield page
                page, size = [], bytes_of(one)
            page.append(one)
        if page:
            yield page


def _size(message: Message) -> int:
    return message.ByteSize()


def _pool_of(request: Query) -> Pool:
    if not request.HasField("pool"):
        raise BadCall(StatusCode.INVALID_ARGUMENT, ".pool is required")
    try:
        return Pool.of(request.pool)
    except WrongValue as wrong:
        # Only a time can be wrong with a pool.
        raise BadCall(StatusCode.INVALID_ARGUMENT, f".invalid {wrong.name} value") from wrong
