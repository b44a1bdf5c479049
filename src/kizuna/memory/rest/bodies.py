"""What is asked: paths, bodies, queries and conditions, read and checked."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kizuna.errors import ItemExists, VersionConflict
from kizuna.memory.context import AtEnd
from kizuna.memory.item import GLOBAL, USUAL_PRIORITY, Kind
from kizuna.memory.rest.problems import BadCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

T = TypeVar("T")

# Of the largest content: room for what JSON escapes, for metadata, and for some items at once.
_TIMES_LARGEST = 8

_ETAG = re.compile(r'"(\d{1,18})"')


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    def given(self, *without: str) -> dict[str, Any]:
        """What was said, by name."""
        pairs = ((name, getattr(self, name)) for name in self.__struct_fields__ if name not in without)
        return {name: value for name, value in pairs if value is not UNSET}


class NewItem(Asked, frozen=True, kw_only=True):
    type: str
    content: Any
    id: str | UnsetType = UNSET
    context: str = GLOBAL
    priority: int = USUAL_PRIORITY
    ttl_s: float | None = None
    metadata: dict[str, Any] | None = None
    kind: Kind = "item"
    cost_s: float | None = None
    importance: float | None = None
    depends_on: list[str] = []
    generation: str | None = None
    sealed: bool | None = None


class ItemUpdate(Asked, frozen=True, kw_only=True):
    content: Any = UNSET
    type: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    ttl_s: float | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    sealed: bool | UnsetType = UNSET
    expected_version: int | UnsetType = UNSET


class Touch(Asked, frozen=True, kw_only=True):
    ttl_s: float | None = None


class Move(Asked, frozen=True, kw_only=True):
    to_context: str
    expected_version: int | UnsetType = UNSET


class Copy(Asked, frozen=True, kw_only=True):
    to_context: str
    new_id: str | UnsetType = UNSET


class NewItems(Asked, frozen=True, kw_only=True):
    items: list[NewItem]


class Ids(Asked, frozen=True, kw_only=True):
    ids: list[str]


class Names(Asked, frozen=True, kw_only=True):
    names: list[str]


class NewContext(Asked, frozen=True, kw_only=True):
    name: str
    type: str
    id: str | UnsetType = UNSET
    ttl_s: float | None = None
    metadata: dict[str, Any] | None = None
    at_end: AtEnd = "delete"
    active: bool = True


class ContextUpdate(Asked, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    ttl_s: float | UnsetType = UNSET
    at_end: AtEnd | UnsetType = UNSET
    expected_version: int | UnsetType = UNSET


class Where(Asked, frozen=True, kw_only=True):
    context: str | None = None


class ItemFilter(Asked, frozen=True, kw_only=True):
    type: str | None = None
    context: str | None = None
    priority: int | None = None
    priority_from: int | None = None
    priority_to: int | None = None
    ends_after: float | None = None
    ends_before: float | None = None
    text: str | None = None
    newest_first: bool = False
    limit: int = 50
    cursor: str = ""


class ContextFilter(Asked, frozen=True, kw_only=True):
    type: str | None = None
    active: bool | None = None
    limit: int = 50
    cursor: str = ""


class WhatBecomesOfItems(Asked, frozen=True, kw_only=True):
    items: AtEnd | None = None


class EventsFrom(Asked, frozen=True, kw_only=True):
    since: str = ""
    limit: int = 100


def id_in(request: Request) -> str:
    found: str = request.path_params["id"]
    return found


def largest_body(largest_bytes: int) -> int:
    return _TIMES_LARGEST * largest_bytes


async def read_body(request: Request, kind: type[T], *, may_be_empty: bool = False) -> T:
    """BadCall for what is too large (413), not called JSON (415), no JSON (400), or not what is expected (422)."""
    raw = await _read_bytes(request)
    if not raw and may_be_empty:
        return kind()
    # Web pages can send anything else to anywhere, without asking first whether they may.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise BadCall(415, "the body has to be application/json, and the Content-Type header has to say so")
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise BadCall(422, f"the body is not what is expected here: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadCall(400, f"the body is no JSON: {error}") from None


async def _read_bytes(request: Request) -> bytes:
    most: int = request.app.state.largest_body
    # A client that says how much it has need not send it.
    if int(request.headers.get("content-length", "0")) > most:
        raise _too_large(most)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise _too_large(most)
    return bytes(body)


def _too_large(most: int) -> BadCall:
    return BadCall(413, f"the body has more than {most:,} bytes; send less, or raise memory.largest_bytes")


def read_query(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadCall(422, f"the query is not what is expected here: {error}") from None


def expected_version(request: Request) -> int | None:
    """By If-Match; None if any version will do."""
    condition = request.headers.get("if-match", "*").strip()
    if condition == "*":
        return None
    found = _ETAG.fullmatch(condition)
    if found is None:
        raise BadCall(400, 'If-Match has to be one version as in the ETag, "3", or *')
    return int(found[1])


def only_if_new(request: Request) -> bool:
    """By If-None-Match."""
    condition = request.headers.get("if-none-match")
    if condition is None:
        return False
    if condition.strip() != "*":
        raise BadCall(400, "If-None-Match can only be * here: write it if there is none")
    return True


@contextmanager
def as_asked(request: Request, update: ItemUpdate | ContextUpdate | Move) -> Iterator[dict[str, Any]]:
    """What is to be updated, by name: with the version of If-Match, if there is one, as a condition."""
    given, version = update.given(), expected_version(request)
    if version is None:
        yield given
        return
    if given.get("expected_version", version) != version:
        raise BadCall(422, "If-Match and expected_version are two different versions")
    with as_precondition():
        yield given | {"expected_version": version}


@contextmanager
def as_precondition() -> Iterator[None]:
    """What a condition in a header did not allow is answered with 412, and not as a conflict."""
    try:
        yield
    except (VersionConflict, ItemExists) as error:
        raise BadCall(412, str(error), error) from None
