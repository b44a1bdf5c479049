"""QueryService, as match functions of Open Match use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from grpc import StatusCode
from tests.match.director.directing import EVERYONE, OpenMatch, match_of, open_match, refusal
from tests.match.director.functions import proposing
from tests.match.filter_cases import cases, equal, tagged

from kizuna.match.openmatch import messages_pb2, query_pb2
from kizuna.settings import Settings
from kizuna.testing import eventually

Query = Callable[[OpenMatch, messages_pb2.Pool], Awaitable[list[str]]]


async def all_of(stream: Any) -> list[Any]:
    return [response async for response in stream]


async def ids_by_query_tickets(om: OpenMatch, pool: messages_pb2.Pool) -> list[str]:
    pages = await all_of(om.query.QueryTickets(query_pb2.QueryTicketsRequest(pool=pool)))
    return [ticket.id for page in pages for ticket in page.tickets]


async def ids_by_query_ticket_ids(om: OpenMatch, pool: messages_pb2.Pool) -> list[str]:
    pages = await all_of(om.query.QueryTicketIds(query_pb2.QueryTicketIdsRequest(pool=pool)))
    return [id_ for page in pages for id_ in page.ids]


async def ids_by_query_backfills(om: OpenMatch, pool: messages_pb2.Pool) -> list[str]:
    pages = await all_of(om.query.QueryBackfills(query_pb2.QueryBackfillsRequest(pool=pool)))
    return [backfill.id for page in pages for backfill in page.backfills]


QUERIES = [ids_by_query_tickets, ids_by_query_ticket_ids, ids_by_query_backfills]


def requests(pool: messages_pb2.Pool | None) -> dict[str, Any]:
    return {
        "QueryTickets": query_pb2.QueryTicketsRequest(pool=pool),
        "QueryTicketIds": query_pb2.QueryTicketIdsRequest(pool=pool),
        "QueryBackfills": query_pb2.QueryBackfillsRequest(pool=pool),
    }


@pytest.mark.parametrize("method", requests(None))
async def test_a_query_without_a_pool_is_refused(om: OpenMatch, method: str) -> None:
    refused = await refusal(all_of(getattr(om.query, method)(requests(None)[method])))

    assert refused == (StatusCode.INVALID_ARGUMENT, ".pool is required")


@pytest.mark.parametrize("method", requests(None))
@pytest.mark.parametrize("name", ["created_before", "created_after"])
async def test_a_pool_with_a_time_that_there_is_not_is_refused(om: OpenMatch, method: str, name: str) -> None:
    pool = messages_pb2.Pool()
    getattr(pool, name).nanos = -1

    refused = await refusal(all_of(getattr(om.query, method)(requests(pool)[method])))

    assert refused == (StatusCode.INVALID_ARGUMENT, f".invalid {name} value")


@pytest.mark.parametrize("method", requests(None))
async def test_where_nobody_waits_the_stream_is_empty(om: OpenMatch, method: str) -> None:
    assert await all_of(getattr(om.query, method)(requests(EVERYONE)[method])) == []


@pytest.mark.parametrize("query", QUERIES[:2])
async def test_every_edge_of_every_filter_is_as_in_open_match(om: OpenMatch, query: Query) -> None:
    table = cases()
    ids = [(await om.mm.create_from(case.ticket)).id for case in table]

    found = [id_ in await query(om, case.pool) for id_, case in zip(ids, table, strict=True)]

    wrong = [case.name for case, is_in in zip(table, found, strict=True) if is_in != case.is_in]
    assert wrong == []


async def test_every_edge_of_every_filter_holds_for_backfills(om: OpenMatch) -> None:
    table = cases()
    ids = []
    for case in table:
        wanted = messages_pb2.Backfill()
        if case.ticket.HasField("search_fields"):
            wanted.search_fields.CopyFrom(case.ticket.search_fields)
        ids.append((await om.mm.create_backfill_from(wanted)).id)

    found = [id_ in await ids_by_query_backfills(om, case.pool) for id_, case in zip(ids, table, strict=True)]

    wrong = [case.name for case, is_in in zip(table, found, strict=True) if is_in != case.is_in]
    assert wrong == []


async def test_a_ticket_comes_whole(om: OpenMatch) -> None:
    ticket = await om.ticket(tags=["a"], doubles={"skill": 3.5}, strings={"mode": "x"}, extensions={"party": 4})

    pages = await all_of(om.query.QueryTickets(query_pb2.QueryTicketsRequest(pool=EVERYONE)))

    assert [list(page.tickets) for page in pages] == [[ticket]]


async def test_many_come_in_pages_each_once_and_the_oldest_first(settings: Settings) -> None:
    async with open_match(settings, page_size=10) as om:
        ids = [ticket.id for ticket in await om.tickets(25)]
        pages = await all_of(om.query.QueryTickets(query_pb2.QueryTicketsRequest(pool=EVERYONE)))
        id_pages = await all_of(om.query.QueryTicketIds(query_pb2.QueryTicketIdsRequest(pool=EVERYONE)))

        assert [len(page.tickets) for page in pages] == [10, 10, 5]
        assert [ticket.id for page in pages for ticket in page.tickets] == ids
        assert [list(page.ids) for page in id_pages] == [ids[:10], ids[10:20], ids[20:]]


async def test_no_page_is_larger_than_clients_take(om: OpenMatch) -> None:
    ids = [(await om.ticket(extensions={"map": b"x" * 900_000})).id for _ in range(6)]

    pages = await all_of(om.query.QueryTickets(query_pb2.QueryTicketsRequest(pool=EVERYONE)))

    assert [ticket.id for page in pages for ticket in page.tickets] == ids
    assert max(page.ByteSize() for page in pages) < 4 * 1024 * 1024
    assert len(pages) == 2


@pytest.mark.parametrize("query", QUERIES[:2])
async def test_who_is_matched_assigned_or_gone_is_not_returned(om: OpenMatch, query: Query) -> None:
    waits, matched, assigned, deleted, deindexed = await om.tickets(5)
    await om.fetched(proposing(match_of("1", matched)))
    await om.assign("a", assigned.id)
    await om.mm.delete_ticket(deleted.id)
    await om.mm.deindex_ticket(deindexed.id)

    assert await query(om, EVERYONE) == [waits.id]


async def test_who_has_ended_by_time_is_not_returned(om: OpenMatch) -> None:
    waits, ended = await om.tickets(2)
    # As if its time were over: the index still names it.
    await om.k.store.call("DEL", f"{om.k.settings.roots.match}{ended.id}")

    assert await ids_by_query_tickets(om, EVERYONE) == [waits.id]


async def test_backfills_are_found_by_what_they_say(om: OpenMatch) -> None:
    one = await om.mm.create_backfill(tags=["pro"], strings={"field": "value"})
    other = await om.mm.create_backfill(tags=["casual"])

    assert await ids_by_query_backfills(om, EVERYONE) == [one.id, other.id]
    assert await ids_by_query_backfills(om, tagged("pro")) == [one.id]
    assert await ids_by_query_backfills(om, equal("value")) == [one.id]
    assert await ids_by_query_backfills(om, tagged("nobody")) == []


async def test_a_deleted_backfill_is_not_returned(om: OpenMatch) -> None:
    backfill = await om.mm.create_backfill()
    await om.mm.delete_backfill(backfill.id)

    assert await ids_by_query_backfills(om, EVERYONE) == []


async def test_a_backfill_that_no_game_server_acknowledges_is_not_returned(settings: Settings) -> None:
    async with open_match(settings, pending_s=1) as om:
        await om.mm.create_backfill()

        async def none_is_left() -> bool:
            return await ids_by_query_backfills(om, EVERYONE) == []

        await eventually(none_is_left, within_s=20)
