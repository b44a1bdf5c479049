"""/events, and as a stream that goes on: server-sent events, with the cursor as their id."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import StreamingResponse

from kizuna.errors import EventsGone, StoreError
from kizuna.memory.rest.answers import answer
from kizuna.memory.rest.bodies import EventsFrom, Names, id_in, read_body, read_query
from kizuna.memory.rest.problems import facts_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from kizuna.memory.events import Event
    from kizuna.memory.memory import Memory

log = logging.getLogger("kizuna.memory")

# So that a peer that is gone is noticed, and what stands between us keeps the connection.
_SIGN_OF_LIFE_S = 15.0
_AHEAD_AT_MOST = 100
_END = None


class EventPages:
    def __init__(self, memory: Memory, stopping: asyncio.Event) -> None:
        self._memory = memory
        self._stopping = stopping
        self._pumps: set[asyncio.Task[None]] = set()

    async def since(self, request: Request) -> Response:
        asked = read_query(request, EventsFrom)
        found = await self._memory.events_since(asked.since or "0", limit=asked.limit)
        return answer({"events": [event_shown(event) for event in found.events], "cursor": found.cursor})

    async def stream(self, request: Request) -> Response:
        asked = read_query(request, EventsFrom)
        # A browser that connects again says how far it came, and asks for the same address as before.
        cursor = request.headers.get("last-event-id") or asked.since or "$"
        if cursor == "$":
            cursor = await self._memory.now_cursor()
        # Now it can still be told by a status that the cursor is wrong, or too old.
        await self._memory.events_since(cursor, limit=1)
        return StreamingResponse(
            self._texts(cursor), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _texts(self, cursor: str) -> AsyncIterator[str]:
        coming: asyncio.Queue[str | None] = asyncio.Queue(_AHEAD_AT_MOST)
        pump = self._start_pump(cursor, coming)
        try:
            # Whoever is cut off before the first event goes on from here as well.
            yield f"id: {cursor}\nretry: 1000\n\n"
            while (text := await self._next(coming)) is not _END:
                yield text
        finally:
            # Not awaited: this may run in a scope that is cancelled, where every await ends at once.
            pump.cancel()

    async def _next(self, coming: asyncio.Queue[str | None]) -> str | None:
        getting = asyncio.ensure_future(coming.get())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({getting, stopping}, timeout=_SIGN_OF_LIFE_S, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
            return _END if stopping.done() else ":\n\n"
        finally:
            getting.cancel()
            stopping.cancel()

    def _start_pump(self, cursor: str, coming: asyncio.Queue[str | None]) -> asyncio.Task[None]:
        pump = asyncio.create_task(self._pump(cursor, coming), name="kizuna memory events")
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)
        return pump

    async def _pump(self, cursor: str, coming: asyncio.Queue[str | None]) -> None:
        """In a task of its own: who waits for an event must be able to stop waiting, without losing it."""
        try:
            async for event in self._memory.follow(cursor):
                await coming.put(event_text(event))
        except EventsGone as error:
            await coming.put(f"event: gone\ndata: {json.dumps({'detail': str(error), **facts_of(error)})}\n\n")
        except StoreError as error:
            log.warning("stream of events ended", extra={"error": str(error)})
        except Exception:
            log.exception("stream of events failed")
        # Whatever it was, the client connects again, and goes on behind the last event that it has.
        await coming.put(_END)


class InvalidationPages:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def changed(self, request: Request) -> Response:
        asked = await read_body(request, Names)
        return answer({"ended": await self._memory.changed(*asked.names)})

    async def raise_generation(self, request: Request) -> Response:
        return answer({"generation": await self._memory.raise_generation(id_in(request))})


def event_shown(event: Event) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(event)
    return shown


def event_text(event: Event) -> str:
    return f"id: {event.cursor}\nevent: {event.kind}\ndata: {json.dumps(event_shown(event))}\n\n"
