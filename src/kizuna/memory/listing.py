"""Pages of items and contexts, over all shards in one order."""

from __future__ import annotations

import asyncio
import json
from heapq import merge
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kizuna.errors import CannotOpen, Undecodable, WrongValue
from kizuna.memory.context import Context, ContextQuery
from kizuna.memory.item import GLOBAL, Item
from kizuna.memory.query import MOST_PER_PAGE, ContextPage, Page, Query
from kizuna.memory.raw_names import sent, shown
from kizuna.memory.scripts import script

if TYPE_CHECKING:
    from kizuna.memory.server_contexts import ServerContexts
    from kizuna.memory.server_keeper import ServerKeeper
    from kizuna.memory.shard import Shard

list_items_of_shard = script("list_items")

# Members that one script looks at: some milliseconds, for which others wait.
_LOOKED_AT_ONCE = 1_000
# And one call to us, before it returns what it has: filters that fit nothing must not go on for ever.
_LOOKED_AT = 20_000


class _Cursor(NamedTuple):
    """The last item that was looked at, of all shards; `created_ms` is empty before the first."""

    created_ms: str = ""
    id: str = ""

    def __str__(self) -> str:
        return f"{self.created_ms}:{self.id}"


class _Found(NamedTuple):
    items: list[Item]
    until: _Cursor
    """How far was looked."""
    more: bool
    uneven: bool


async def list_items(keeper: ServerKeeper, query: Query) -> Page:
    """As many as were asked for, unless too many had to be looked at, or there are no more."""
    cursor, items, looked = cursor_of(query.cursor), list[Item](), 0
    text = query.text.casefold() if query.text else ""
    while True:
        wanted = query.limit - len(items)
        found, more, cursor = await _merged(keeper, query, cursor, wanted if not text else MOST_PER_PAGE)
        fitting = [item for item in found if not text or says(item, text)]
        items += fitting[:wanted]
        # Also where nothing was found, something was looked at.
        looked += max(len(found), _LOOKED_AT_ONCE)
        if len(fitting) > wanted:
            return Page(items=items, cursor=str(cursor_at(items[-1])))
        if not more:
            return Page(items=items)
        if len(items) == query.limit or looked >= _LOOKED_AT:
            return Page(items=items, cursor=str(cursor))


def says(item: Item, text: str) -> bool:
    """Whether the text, in small letters, is somewhere in the content. One that cannot be read says nothing. In what is
    more than text it is also looked for as JSON writes it: with its quotes and line ends behind backslashes."""
    try:
        content = item.content
    except (CannotOpen, Undecodable):
        return False
    if isinstance(content, str):
        return text in content.casefold()
    written = _written(content).casefold()
    return text in written or _written(text)[1:-1] in written


def _written(content: Any) -> str:
    try:
        return msgspec.json.encode(content).decode()
    except UnicodeEncodeError:  # half of a surrogate pair, that others wrote
        return json.dumps(content, ensure_ascii=False)


def cursor_of(text: str) -> _Cursor:
    """WrongValue if it is from no page."""
    if not text:
        return _Cursor()
    created_ms, colon, id_ = text.partition(":")
    if not colon or not created_ms.lstrip("-").isdigit():
        raise WrongValue("cursor", repr(text), "the cursor of a page")
    return _Cursor(created_ms, id_)


def cursor_at(item: Item) -> _Cursor:
    return _Cursor(f"{item.created_at * 1000:.0f}", item.id)


async def _merged(keeper: ServerKeeper, query: Query, after: _Cursor, wanted: int) -> tuple[list[Item], bool, _Cursor]:
    """The next items of all shards, at most as many as wanted; whether there are more; and how far was looked."""
    in_all = query.context in (None, GLOBAL)
    shards = keeper.shards if in_all else [keeper.shard_of(query.context or "")]
    found = await asyncio.gather(*(_settled(keeper, shard, query, after, wanted) for shard in shards))
    if len(found) == 1:
        return found[0].items, found[0].more, found[0].until
    # No further than the shard that was looked at least far, unless it has no more.
    ends = [_order(one.until) for one in found if one.more]
    end = (max if query.newest_first else min)(ends) if ends else None
    items = []
    for item in merge(*(one.items for one in found), key=_item_order, reverse=query.newest_first):
        order = _item_order(item)
        if end is not None and (order < end if query.newest_first else order > end):
            break
        items.append(item)
    if len(items) >= wanted:
        over = len(items) > wanted or any(one.more for one in found)
        return items[:wanted], over, cursor_at(items[wanted - 1])
    if end is None:
        return items, False, after
    return items, True, _Cursor(f"{end[0]:.0f}", end[1])


def _order(cursor: _Cursor) -> tuple[float, str]:
    return float(cursor.created_ms or 0), cursor.id


def _item_order(item: Item) -> tuple[float, str]:
    return round(item.created_at * 1000), item.id


async def _settled(keeper: ServerKeeper, shard: Shard, query: Query, after: _Cursor, wanted: int) -> _Found:
    from kizuna.memory.settling import OrderedIndex, settle_index

    found = await _look(keeper, shard, query, after, wanted)
    if found.uneven and (query.context or query.type):
        # Somebody who knows nothing of our order has written or removed items.
        index = OrderedIndex(shard.root, "" if query.context else query.type or "", query.context or "")
        if index not in keeper.unsettled:
            await settle_index(keeper, index)
            found = await _look(keeper, shard, query, after, wanted)
    return found


async def _look(keeper: ServerKeeper, shard: Shard, query: Query, after: _Cursor, wanted: int) -> _Found:
    reply: list[Any] = await list_items_of_shard(
        keeper.store,
        **shard.told,
        expiry=shard.expiry,
        type_=query.type or "",
        context=query.context or "",
        lowest="" if query.priority is None else query.priority[0],
        highest="" if query.priority is None else query.priority[1],
        ends_after="" if query.ends_after is None else round(query.ends_after * 1000),
        ends_before="" if query.ends_before is None else round(query.ends_before * 1000),
        newest=int(query.newest_first),
        after=after.created_ms,
        after_id=after.id,
        limit=wanted,
        most=max(_LOOKED_AT_ONCE, wanted),
        ids_only=int(query.is_plain),
    )
    created_ms, id_, more, uneven, now_ms, *rows = reply
    until = _Cursor(created_ms.decode(), shown(id_))
    if not query.is_plain:
        items = [item for item in map(keeper.item_of, rows) if item is not None]
        return _Found(items, until, bool(more), bool(uneven))
    read, gone = await keeper.read_listed(shard, rows, int(now_ms) / 1000)
    strays = [item for item in read if not _is_in_place(item, query)]
    if strays:
        # Somebody wrote them anew, as of another type or in another context.
        read = [item for item in read if item not in strays]
        gone = [*gone, *(sent(item.id) for item in strays)]
    if gone:
        from kizuna.memory.settling import settle

        # They have ended, and nobody has told of it; or somebody took them away, and may have brought others.
        outcomes = await settle(keeper, shard, gone, type_=query.type or "", context=query.context or "")
        uneven = uneven or any(outcome != b"ended" for outcome in outcomes)
    return _Found(read, until, bool(more), bool(uneven))


def _is_in_place(item: Item, query: Query) -> bool:
    return query.type in (None, item.type) and query.context in (None, item.context)


async def list_contexts(keeper: ServerContexts, query: ContextQuery) -> ContextPage:
    """In the order of their ids. The ids are read whole: contexts are few, beside items."""
    from kizuna.memory.settling import context_ids

    ids = sorted(await context_ids(keeper, query))
    start = next((at for at, id_ in enumerate(ids) if id_ > query.cursor), len(ids)) if query.cursor else 0
    contexts: list[Context] = []
    while start < len(ids) and len(contexts) < query.limit:
        some = ids[start : start + query.limit - len(contexts)]
        contexts += [one for one in await keeper.read_contexts(some) if one is not None and _fits(one, query)]
        start += len(some)
    return ContextPage(contexts=contexts, cursor=ids[start - 1] if start < len(ids) else "")


def _fits(context: Context, query: ContextQuery) -> bool:
    return query.type in (None, context.type) and query.is_active in (None, context.is_active)
