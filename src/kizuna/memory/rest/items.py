"""/items and /batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from kizuna.errors import ItemMissing
from kizuna.memory.item import HIGHEST_PRIORITY
from kizuna.memory.rest.answers import answer, item_answer, item_shown
from kizuna.memory.rest.bodies import (
    Copy,
    Ids,
    ItemFilter,
    ItemUpdate,
    Move,
    NewItem,
    NewItems,
    Touch,
    Where,
    as_asked,
    as_precondition,
    expected_version,
    id_in,
    only_if_new,
    read_body,
    read_query,
)
from kizuna.memory.rest.problems import BadCall

if TYPE_CHECKING:
    from starlette.requests import Request

    from kizuna.memory.memory import Memory


class ItemPages:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def create(self, request: Request) -> Response:
        new = await read_body(request, NewItem)
        return item_answer(await self._memory.create(**new.given()), 201)

    async def read(self, request: Request) -> Response:
        item = await self._memory.get(id_in(request), context=read_query(request, Where).context)
        if item is None:
            raise ItemMissing(id_in(request))
        return item_answer(item)

    async def put(self, request: Request) -> Response:
        if "if-match" in request.headers:
            raise BadCall(400, "PUT replaces whatever is there; PATCH takes If-Match")
        new = await read_body(request, NewItem)
        if "id" in new.given():
            raise BadCall(422, "the id of what is put is in the path; leave it out of the body")
        if not only_if_new(request):
            item = await self._memory.put(id_in(request), **new.given())
            return item_answer(item, 201 if item.version == 1 else 200)
        with as_precondition():
            return item_answer(await self._memory.create(id=id_in(request), **new.given()), 201)

    async def update(self, request: Request) -> Response:
        update, where = await read_body(request, ItemUpdate), read_query(request, Where)
        with as_asked(request, update) as given:
            return item_answer(await self._memory.update(id_in(request), context=where.context, **given))

    async def touch(self, request: Request) -> Response:
        touch = await read_body(request, Touch, may_be_empty=True)
        where = read_query(request, Where)
        return item_answer(await self._memory.touch(id_in(request), ttl_s=touch.ttl_s, context=where.context))

    async def move(self, request: Request) -> Response:
        move, where = await read_body(request, Move), read_query(request, Where)
        with as_asked(request, move) as given:
            return item_answer(await self._memory.move(id_in(request), context=where.context, **given))

    async def copy(self, request: Request) -> Response:
        copy = await read_body(request, Copy)
        return item_answer(await self._memory.copy(id_in(request), **copy.given()), 201)

    async def delete(self, request: Request) -> Response:
        version, where = expected_version(request), read_query(request, Where)
        with as_precondition():
            gone = await self._memory.delete(id_in(request), expected_version=version, context=where.context)
        if not gone:
            raise ItemMissing(id_in(request))
        return Response(status_code=204)

    async def list(self, request: Request) -> Response:
        asked = read_query(request, ItemFilter)
        page = await self._memory.list(
            **asked.given("priority", "priority_from", "priority_to"), priority=priorities(asked)
        )
        items = [item_shown(item) for item in page.items]
        return answer({"items": items, "cursor": page.cursor, "from_backup": page.from_backup})

    # -- many at once -----------------------------------------------------------------------------------

    async def create_many(self, request: Request) -> Response:
        asked = await read_body(request, NewItems)
        items = await self._memory.create_many([new.given() for new in asked.items])
        return answer({"items": [item_shown(item) for item in items]}, 201)

    async def read_many(self, request: Request) -> Response:
        asked = await read_body(request, Ids)
        items = await self._memory.get_many(asked.ids)
        return answer({"items": [item and item_shown(item) for item in items]})

    async def delete_many(self, request: Request) -> Response:
        asked = await read_body(request, Ids)
        return answer({"deleted": await self._memory.delete_many(asked.ids)})


def priorities(asked: ItemFilter) -> int | tuple[int, int] | None:
    if asked.priority_from is None and asked.priority_to is None:
        return asked.priority
    if asked.priority is not None:
        raise BadCall(422, "ask for a priority, or for those from priority_from to priority_to")
    return asked.priority_from or 1, asked.priority_to or HIGHEST_PRIORITY
