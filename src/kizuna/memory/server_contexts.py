"""Contexts on the server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kizuna.errors import ContextExists, ContextMissing, Refused, VersionConflict
from kizuna.memory.context import CONTEXT_FIELDS, AtEnd, Context, ContextChange, ContextQuery, NewContext
from kizuna.memory.doubts import Doubts
from kizuna.memory.keepers import FoundContexts
from kizuna.memory.policy import Policy
from kizuna.memory.reading import context_of
from kizuna.memory.scripts import script
from kizuna.memory.shard import Shard
from kizuna.store.repeating import until_known

if TYPE_CHECKING:
    from kizuna.memory.query import ContextPage
    from kizuna.memory.settling import OrderedIndex
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots

write_context = script("write_context")
change_context = script("change_context")
remove_context = script("remove_context")

_PACKED_FIELDS = msgspec.msgpack.encode(CONTEXT_FIELDS)
# What does not fit in is found again, by whoever lists there next.
_MOST_UNSETTLED = 100
_NO_CONTEXT = [None] * len(CONTEXT_FIELDS)
# Items that one script ends: a few milliseconds, for which others wait.
_AT_ONCE = 200


class ServerContexts:
    """The half of the server's keeper that is about contexts, and what both halves stand on: shards and policy."""

    def __init__(self, store: Store, roots: Roots) -> None:
        settings = store.settings.memory
        self.store, self.roots, self.policy = store, roots, Policy(settings)
        self.doubts = Doubts(store.settings.store.timeout_s)
        self.shards = [Shard(root, settings.feed_length) for root in roots.all]
        self._shard_of_root = {shard.root: shard for shard in self.shards}
        self.unsettled: deque[OrderedIndex] = deque(maxlen=_MOST_UNSETTLED)
        """Large indexes that do not agree with their orders, for the sweeper, which may be in another thread."""

    def shard_at(self, root: str) -> Shard:
        return self._shard_of_root[root]

    def shard_of(self, context: str) -> Shard:
        return self._shard_of_root[self.roots.of(context)]

    async def write_context(self, new: NewContext) -> Context:
        shard = self.shard_of(new.id)
        key = shard.context(new.id)

        def attempt(tried_ms: str) -> Any:
            return write_context(
                self.store,
                **shard.told,
                context=key,
                bounds=self.policy.bounds,
                id=new.id,
                name=new.name,
                type_=new.type,
                metadata=new.metadata,
                ttl_ms=new.ttl_ms,
                at_end=new.at_end,
                is_active=int(new.is_active),
                token=new.token,
                tried_ms=tried_ms,
            )

        outcome, *written = await self.doubts.until_known("context", new.id, new.token, attempt)
        if outcome == b"exists":
            raise ContextExists(new.id)
        version, created_ms, expires_ms, life_ms = map(int, written)
        return Context(
            id=new.id,
            name=new.name,
            type=new.type,
            raw_metadata=new.metadata,
            version=version,
            created_at=created_ms / 1000,
            updated_at=created_ms / 1000,
            expires_at=expires_ms / 1000,
            ttl_s=life_ms / 1000,
            at_end=new.at_end,
            is_active=new.is_active,
        )

    async def read_contexts(self, ids: Sequence[str], *, whatever_is_there: bool = False) -> FoundContexts:
        """Of several, what somebody else put in the place of one is none; with `whatever_is_there`, of one as well."""
        asked = []
        for id_ in ids:
            shard = self.shard_of(id_)
            asked.append(self.store.call("HMGET", shard.context(id_), *CONTEXT_FIELDS))
            asked.append(self.store.call("SISMEMBER", shard.contexts_active, id_))
        replies = await asyncio.gather(*asked, return_exceptions=True)
        if whatever_is_there or len(ids) > 1:
            replies = [_NO_CONTEXT if _is_wrong_type(reply) else reply for reply in replies]
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        found: list[Any] = list(replies)
        return [
            context_of(values, bool(active), id_)
            for id_, values, active in zip(ids, found[::2], found[1::2], strict=True)
        ]

    async def change_context(self, change: ContextChange) -> Context:
        return await self._change(change, touches=False)

    async def touch_context(self, id: str, ttl_ms: int | None) -> Context:  # noqa: A002 - as everywhere
        return await self._change(ContextChange(id=id, token="", ttl_ms=ttl_ms), touches=True)

    async def remove_context(self, id: str, items: AtEnd | None) -> bool:  # noqa: A002
        from kizuna.memory.settling import OrderedIndex, settle_whole

        shard = self.shard_of(id)
        key = shard.context(id)
        # Those that others wrote end with it, too.
        await settle_whole(self, OrderedIndex(shard.root, context=id))
        removed = False
        left = 1
        while left:
            outcome, left = await until_known(
                lambda: remove_context(
                    self.store,
                    **shard.told,
                    context=key,
                    bounds=self.policy.bounds,
                    id=id,
                    at_end=items or "",
                    most=_AT_ONCE,
                )
            )
            removed = removed or outcome == b"removed"
        return removed

    async def list_contexts(self, query: ContextQuery) -> ContextPage:
        from kizuna.memory.listing import list_contexts

        return await list_contexts(self, query)

    async def _change(self, change: ContextChange, *, touches: bool) -> Context:
        shard = self.shard_of(change.id)
        key = shard.context(change.id)
        active = "" if change.is_active is None else int(change.is_active)

        def attempt(tried_ms: str) -> Any:
            return change_context(
                self.store,
                **shard.told,
                context=key,
                bounds=self.policy.bounds,
                id=change.id,
                expected="" if change.expected_version is None else change.expected_version,
                touches=int(touches),
                name=change.name or "",
                type_=change.type or "",
                metadata=change.metadata or b"",
                ttl_ms=change.ttl_ms or "",
                at_end=change.at_end or "",
                is_active=active,
                token=change.token,
                tried_ms=tried_ms,
                fields=_PACKED_FIELDS,
            )

        if touches:
            # Repeated, it touches again.
            outcome, *details = await until_known(lambda: attempt(""))
        else:
            outcome, *details = await self.doubts.until_known("context", change.id, change.token, attempt)
        if outcome == b"missing":
            raise ContextMissing(change.id)
        if outcome == b"conflict":
            raise VersionConflict("context", change.id, change.expected_version or 0, int(details[0]))
        is_active, values = details
        context = context_of(values, bool(is_active), change.id)
        if context is None:
            raise ContextMissing(change.id)
        return context


def _is_wrong_type(reply: object) -> bool:
    return isinstance(reply, Refused) and reply.code == "WRONGTYPE"
