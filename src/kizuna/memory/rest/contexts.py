"""/contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from kizuna.errors import ContextMissing
from kizuna.memory.rest.answers import answer, context_answer
from kizuna.memory.rest.bodies import (
    ContextFilter,
    ContextUpdate,
    NewContext,
    WhatBecomesOfItems,
    as_asked,
    id_in,
    read_body,
    read_query,
)

if TYPE_CHECKING:
    from starlette.requests import Request

    from kizuna.memory.memory import Memory


class ContextPages:
    def __init__(self, memory: Memory) -> None:
        self._contexts = memory.contexts

    async def create(self, request: Request) -> Response:
        new = await read_body(request, NewContext)
        return context_answer(await self._contexts.create(**new.given()), 201)

    async def read(self, request: Request) -> Response:
        context = await self._contexts.get(id_in(request))
        if context is None:
            raise ContextMissing(id_in(request))
        return context_answer(context)

    async def update(self, request: Request) -> Response:
        with as_asked(request, await read_body(request, ContextUpdate)) as given:
            return context_answer(await self._contexts.update(id_in(request), **given))

    async def activate(self, request: Request) -> Response:
        return context_answer(await self._contexts.activate(id_in(request)))

    async def deactivate(self, request: Request) -> Response:
        return context_answer(await self._contexts.deactivate(id_in(request)))

    async def touch(self, request: Request) -> Response:
        return context_answer(await self._contexts.touch(id_in(request)))

    async def delete(self, request: Request) -> Response:
        items = read_query(request, WhatBecomesOfItems).items
        if not await self._contexts.delete(id_in(request), items=items):
            raise ContextMissing(id_in(request))
        return Response(status_code=204)

    async def list(self, request: Request) -> Response:
        page = await self._contexts.list(**read_query(request, ContextFilter).given())
        contexts = [context.as_dict() for context in page.contexts]
        return answer({"contexts": contexts, "cursor": page.cursor, "from_backup": page.from_backup})
