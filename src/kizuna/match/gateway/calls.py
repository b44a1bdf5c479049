"""One call from its request to its answer."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from grpc import StatusCode

from kizuna.match.gateway.codes import Failure, Refused
from kizuna.match.gateway.exchange import Gone
from kizuna.match.serving.health_calls import LEAVING
from kizuna.match.serving.statuses import answer_to

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from kizuna.match.gateway.dialects import CallDialect, Dialect, StreamDialect
    from kizuna.match.gateway.exchange import Exchange
    from kizuna.match.serving.rpcs import Rpc

_TOO_LATE = Failure(StatusCode.DEADLINE_EXCEEDED, "the time that the request gives us is over")
_STOPPING = Failure(StatusCode.UNAVAILABLE, LEAVING)


async def serve_call(
    exchange: Exchange, rpc: Rpc, dialect: CallDialect | StreamDialect, largest: int, stopping: asyncio.Event
) -> StatusCode:
    """Returns how it ended: CANCELLED if the client left."""
    try:
        timeout_s = exchange.timeout_s()
        request = await dialect.read(exchange, rpc.request, largest)
    except Refused as refused:
        return await _refuse(exchange, dialect, refused)
    except Gone:
        return StatusCode.CANCELLED
    if rpc.streams:
        return await _Stream(exchange, rpc, cast("StreamDialect", dialect), request, stopping).run(timeout_s)
    return await _answer(exchange, rpc, cast("CallDialect", dialect), request, timeout_s)


async def _answer(
    exchange: Exchange, rpc: Rpc, dialect: CallDialect, request: Message, timeout_s: float | None
) -> StatusCode:
    """What was begun is done also if the client leaves: half of it would be worse."""
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            answer = dialect.answer(await cast("Any", rpc.call)(request))
    except Exception as error:
        failure = _TOO_LATE if limit.expired() else Failure(*answer_to(error, rpc.path))
        return await _refuse(exchange, dialect, Refused(failure))
    await exchange.answer(answer)
    return StatusCode.OK


async def _refuse(exchange: Exchange, dialect: Dialect, refused: Refused) -> StatusCode:
    await exchange.answer(dialect.refusal(refused))
    return refused.failure.code


class _Stream:
    def __init__(
        self, exchange: Exchange, rpc: Rpc, dialect: StreamDialect, request: Message, stopping: asyncio.Event
    ) -> None:
        self._exchange = exchange
        self._rpc = rpc
        self._dialect = dialect
        self._request = request
        self._stopping = stopping

    async def run(self, timeout_s: float | None) -> StatusCode:
        if self._dialect.begins_at_once:
            await self._begin()
        pumping = asyncio.create_task(self._pump())
        leaving = asyncio.create_task(self._exchange.left())
        stopping = asyncio.create_task(self._told_to_stop())
        tasks = (pumping, leaving, stopping)
        try:
            await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            failure = pumping.result() if pumping.done() else _STOPPING if stopping.done() else _TOO_LATE
            has_left = leaving.done() and not pumping.done()
        finally:
            for task in tasks:
                task.cancel()
            # Whatever the call holds is let go before its client is told of the end.
            await asyncio.wait(tasks)
        if has_left:
            return StatusCode.CANCELLED
        await self._end(failure)
        return failure.code if failure else StatusCode.OK

    async def _pump(self) -> Failure | None:
        """In a task of its own: it can wait for a message, or for a slow reader, and be ended in both."""
        try:
            async with aclosing(cast("Any", self._rpc.call)(self._request)) as responses:
                async for response in responses:
                    item = self._dialect.item(response)
                    await self._begin()
                    await self._exchange.write(item)
        except Exception as error:
            return Failure(*answer_to(error, self._rpc.path))
        return None

    async def _told_to_stop(self) -> None:
        """Never, if what streams here ends by itself."""
        await (self._stopping.wait() if self._rpc.endless else asyncio.Event().wait())

    async def _begin(self) -> None:
        if not self._exchange.began:
            await self._exchange.begin(200, self._dialect.content_type)

    async def _end(self, failure: Failure | None) -> None:
        if failure and not self._exchange.began:
            await _refuse(self._exchange, self._dialect, Refused(failure))
            return
        await self._begin()
        await self._exchange.write(self._dialect.end(failure), more=False)
