"""Who keeps items and contexts: the server, or while that cannot be reached, a copy on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Protocol, TypeVar

from kizuna.errors import KizunaError
from kizuna.memory.context import AtEnd, Context, ContextChange, ContextQuery, NewContext
from kizuna.memory.item import Item, ItemChange, NewItem
from kizuna.memory.query import ContextPage, Page, Query

T = TypeVar("T")
FoundItems = list[Item | None]
FoundContexts = list[Context | None]
Written = list[Item | KizunaError]
Removed = list[bool | KizunaError]


class Keeper(Protocol):
    """Everything that is asked of it is checked already."""

    async def write(self, new: NewItem) -> Item:
        """ItemExists if there is one of this id, unless it is to be replaced."""

    async def write_many(self, news: Sequence[NewItem]) -> Written:
        """In the place of each that could not be written, why."""

    async def read(self, ids: Sequence[str], context: str | None = None) -> FoundItems:
        """None in the place of each that is not there. `context`: where all of them are, if that is known."""

    async def change(self, change: ItemChange) -> Item:
        """ItemMissing; VersionConflict if it is not the expected one; ContentSealed if the old content is, and the new
        one is not."""

    async def touch(self, id: str, ttl_ms: int | None, context: str | None = None) -> Item:  # noqa: A002
        """It lives at least as long again as it was given, or this long from now. ItemMissing."""

    async def remove(self, id: str, expected_version: int | None, context: str | None = None) -> bool:  # noqa: A002
        """False if it was not there. VersionConflict if it is not the expected one."""

    async def remove_many(self, ids: Sequence[str]) -> Removed:
        """Whether each was there; in the place of one that could not be removed, why."""

    async def list(self, query: Query) -> Page: ...

    async def write_context(self, new: NewContext) -> Context:
        """ContextExists if there is one of this id."""

    async def read_contexts(self, ids: Sequence[str]) -> FoundContexts: ...

    async def change_context(self, change: ContextChange) -> Context:
        """ContextMissing, or VersionConflict if it is not the expected one."""

    async def touch_context(self, id: str, ttl_ms: int | None) -> Context:  # noqa: A002
        """ContextMissing."""

    async def remove_context(self, id: str, items: AtEnd | None) -> bool:  # noqa: A002
        """False if it was not there. `items`: what becomes of its items; None: what it was told at its beginning."""

    async def list_contexts(self, query: ContextQuery) -> ContextPage: ...


async def each(steps: Iterable[Awaitable[T]]) -> list[T | KizunaError]:
    """What became of each, or why it did not. All begin in one turn of the loop, so that they share a call, or a
    transaction."""
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, KizunaError):
            raise outcome
    return outcomes  # type: ignore[return-value]  # what else there may be was raised
