"""What is answered: items and contexts as JSON, with their version as the ETag."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.responses import Response

if TYPE_CHECKING:
    from kizuna.memory.context import Context
    from kizuna.memory.item import Item

JSON_TYPE = "application/json"


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    # In ASCII: so one half of a surrogate pair, which JavaScript can write, can be passed on.
    return Response(json.dumps(value), status, headers, JSON_TYPE)


def item_answer(item: Item, status: int = 200) -> Response:
    return answer(item_shown(item), status, _headers("items", item.id, item.version))


def context_answer(context: Context, status: int = 200) -> Response:
    return answer(context.as_dict(), status, _headers("contexts", context.id, context.version))


def item_shown(item: Item) -> dict[str, Any]:
    """One that cannot be opened or read is shown without what cannot, and with the reason."""
    shown, problem = item.as_far_as_readable()
    return shown | ({"problem": problem} if problem else {})


def _headers(kind: str, id: str, version: int) -> dict[str, str]:  # noqa: A002 - as everywhere
    return {"ETag": f'"{version}"', "Location": f"/{kind}/{quote(id, safe='')}"}
