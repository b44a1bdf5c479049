"""`k.memory.contexts`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from kizuna.memory.context import AtEnd, Context, ContextChange, ContextQuery
from kizuna.memory.drafts import (
    Drafts,
    check_at_end,
    check_cursor,
    check_flag,
    check_limit,
    check_text,
    check_version,
    new_token,
)
from kizuna.memory.keys import CONTEXTS_OF_TYPE
from kizuna.memory.query import MOST_PER_PAGE, ContextPage
from kizuna.store.lifetimes import lifetime_ms

if TYPE_CHECKING:
    from kizuna.memory.keepers import Keeper


class Contexts:
    """What items belong to. One that is active lives longer by being used; its items end with it, or are left to the
    global context, as it was told."""

    def __init__(self, keeper: Keeper, drafts: Drafts, begin: Callable[[], Awaitable[None]]) -> None:
        self._keeper, self._drafts, self._begin = keeper, drafts, begin

    async def create(
        self,
        name: str,
        type: str,  # noqa: A002 - as everywhere
        *,
        id: str | None = None,  # noqa: A002
        ttl_s: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        at_end: AtEnd = "delete",
        active: bool = True,
    ) -> Context:
        """ContextExists if there is one of this id."""
        new = self._drafts.context(name, type, id=id, ttl_s=ttl_s, metadata=metadata, at_end=at_end, active=active)
        await self._begin()
        return await self._keeper.write_context(new)

    async def get(self, id: str) -> Context | None:  # noqa: A002
        return (await self._keeper.read_contexts([self._drafts.context_id(id)]))[0]

    async def update(
        self,
        id: str,  # noqa: A002
        *,
        name: str | None = None,
        type: str | None = None,  # noqa: A002
        metadata: Mapping[str, Any] | None = None,
        ttl_s: float | None = None,
        at_end: AtEnd | None = None,
        expected_version: int | None = None,
    ) -> Context:
        """What is not said stays. ContextMissing, or VersionConflict if it is not the expected one."""
        check_version(expected_version)
        if name is not None:
            check_text("name", name)
        if type is not None:
            self._drafts.check_name(CONTEXTS_OF_TYPE, "type", type)
        if at_end is not None:
            check_at_end(at_end)
        change = ContextChange(
            id=self._drafts.context_id(id),
            token=new_token(),
            expected_version=expected_version,
            name=name,
            type=type,
            metadata=None if metadata is None else self._drafts.metadata(metadata),
            ttl_ms=None if ttl_s is None else lifetime_ms(ttl_s),
            at_end=at_end,
        )
        await self._begin()
        return await self._keeper.change_context(change)

    async def activate(self, id: str) -> Context:  # noqa: A002
        """From now on it lives longer by being used; now as well. ContextMissing."""
        return await self._set_active(id, True)

    async def deactivate(self, id: str) -> Context:  # noqa: A002
        """It ends when it was last said that it would. ContextMissing."""
        return await self._set_active(id, False)

    async def touch(self, id: str, *, ttl_s: float | None = None) -> Context:  # noqa: A002
        """It lives at least as long again as it was given, or this long from now. ContextMissing."""
        await self._begin()
        return await self._keeper.touch_context(
            self._drafts.context_id(id), None if ttl_s is None else lifetime_ms(ttl_s)
        )

    async def delete(self, id: str, *, items: AtEnd | None = None) -> bool:  # noqa: A002
        """End it now, and with it its items, or leave them to the global one; unless said here, as it was told.
        False if there was none."""
        if items is not None:
            check_at_end(items)
        await self._begin()
        return await self._keeper.remove_context(self._drafts.context_id(id), items)

    async def list(
        self,
        *,
        type: str | None = None,  # noqa: A002
        active: bool | None = None,
        limit: int = 50,
        cursor: str = "",
    ) -> ContextPage:
        """In the order of their ids."""
        check_limit(limit)
        check_cursor(cursor)
        if type is not None:
            self._drafts.check_name(CONTEXTS_OF_TYPE, "type", type)
        if active is not None:
            check_flag("active", active)
        return await self._keeper.list_contexts(ContextQuery(type=type, is_active=active, limit=limit, cursor=cursor))

    async def all(self, *, type: str | None = None, active: bool | None = None) -> AsyncIterator[Context]:  # noqa: A002
        cursor = ""
        while True:
            page = await self.list(type=type, active=active, limit=MOST_PER_PAGE, cursor=cursor)
            for context in page.contexts:
                yield context
            cursor = page.cursor
            if not cursor:
                return

    async def _set_active(self, id_: str, active: bool) -> Context:
        await self._begin()
        change = ContextChange(id=self._drafts.context_id(id_), token=new_token(), is_active=active)
        return await self._keeper.change_context(change)
