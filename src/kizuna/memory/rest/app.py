"""app_of(k): every path, and who answers it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from kizuna._version import __version__
from kizuna.configuration import read_text
from kizuna.errors import KizunaError, StoreError
from kizuna.memory.rest import problems
from kizuna.memory.rest.answers import answer
from kizuna.memory.rest.bodies import largest_body
from kizuna.memory.rest.contexts import ContextPages
from kizuna.memory.rest.events import EventPages, InvalidationPages
from kizuna.memory.rest.guard import Guard
from kizuna.memory.rest.items import ItemPages
from kizuna.memory.rest.openapi import OPENAPI

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from kizuna.memory.rest.connected import Connected
    from kizuna.settings import MemorySettings

_HEALTHY_WITHIN_S = 2.0


def app_of(k: Connected, stopping: asyncio.Event | None = None) -> Starlette:
    """An ASGI application over a connected system, for `RestApi` or any server of yours. `stopping` ends the streams
    of events, which would otherwise go on for as long as their readers."""
    app = Starlette(
        routes=routes_of(k, stopping or asyncio.Event()),
        middleware=[Middleware(Guard, token=token_of(k.settings.memory))],
        exception_handlers={
            KizunaError: problems.answer_kizuna_error,
            ExceptionGroup: problems.answer_many,
            problems.BadCall: problems.answer_bad_call,
            HTTPException: problems.answer_http_exception,
            Exception: problems.answer_surprise,
        },
    )
    app.state.largest_body = largest_body(k.settings.memory.largest_bytes)
    return app


def routes_of(k: Connected, stopping: asyncio.Event) -> list[Route]:
    """An id may hold a `/`: so what is done with an item comes before the item itself, and only by POST."""
    items, contexts = ItemPages(k.memory), ContextPages(k.memory)
    events, invalidation = EventPages(k.memory, stopping), InvalidationPages(k.memory)
    return [
        _route("GET", "/health", health_of(k)),
        _route("GET", "/openapi.json", openapi),
        _route("POST", "/items", items.create),
        _route("GET", "/items", items.list),
        _route("POST", "/items/{id:path}/touch", items.touch),
        _route("POST", "/items/{id:path}/move", items.move),
        _route("POST", "/items/{id:path}/copy", items.copy),
        _route("GET", "/items/{id:path}", items.read),
        _route("PUT", "/items/{id:path}", items.put),
        _route("PATCH", "/items/{id:path}", items.update),
        _route("DELETE", "/items/{id:path}", items.delete),
        _route("POST", "/batch/create", items.create_many),
        _route("POST", "/batch/get", items.read_many),
        _route("POST", "/batch/delete", items.delete_many),
        _route("POST", "/contexts", contexts.create),
        _route("GET", "/contexts", contexts.list),
        _route("POST", "/contexts/{id:path}/activate", contexts.activate),
        _route("POST", "/contexts/{id:path}/deactivate", contexts.deactivate),
        _route("POST", "/contexts/{id:path}/touch", contexts.touch),
        _route("GET", "/contexts/{id:path}", contexts.read),
        _route("PATCH", "/contexts/{id:path}", contexts.update),
        _route("DELETE", "/contexts/{id:path}", contexts.delete),
        _route("GET", "/events", events.since),
        _route("GET", "/events/stream", events.stream),
        _route("POST", "/changed", invalidation.changed),
        _route("POST", "/generations/{id:path}", invalidation.raise_generation),
    ]


def _route(method: str, path: str, page: Callable[[Request], Awaitable[Response]]) -> Route:
    return Route(path, page, methods=[method])


def health_of(k: Connected) -> Callable[[Request], Awaitable[Response]]:
    async def health(_: Request) -> Response:
        began = time.monotonic()
        try:
            async with asyncio.timeout(_HEALTHY_WITHIN_S):
                await k.store.call("PING")
        except (StoreError, TimeoutError) as error:
            reason = str(error) or f"no answer within {_HEALTHY_WITHIN_S:g}s"
            return answer({"status": "unhealthy", "version": __version__, "problem": reason}, 503)
        took_ms = round((time.monotonic() - began) * 1000, 3)
        return answer({"status": "healthy", "version": __version__, "server_ms": took_ms})

    return health


async def openapi(_: Request) -> Response:
    return answer(OPENAPI)


def token_of(settings: MemorySettings) -> str:
    """Whoever loaded the settings has read the file already; who made them in code has not."""
    if settings.rest_token or not settings.rest_token_file:
        return settings.rest_token
    return read_text(Path(settings.rest_token_file).expanduser()).rstrip("\r\n")
