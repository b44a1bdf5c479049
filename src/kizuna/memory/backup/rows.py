"""Items and contexts as rows of the copy, and back. No I/O here."""

from __future__ import annotations

from typing import Any

import msgspec

from kizuna.memory.context import Context
from kizuna.memory.item import USUAL, Item, More, Opener

ITEM_COLUMNS = (
    "id, type, context, priority, content, metadata, version, created_ms, updated_ms, expires_ms, ttl_ms, more"
)
CONTEXT_COLUMNS = "id, name, type, metadata, version, created_ms, updated_ms, expires_ms, ttl_ms, at_end, is_active"

_decode_more = msgspec.json.Decoder(More).decode


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def item_row(item: Item) -> tuple[Any, ...]:
    more = b"" if item.more.is_usual else msgspec.json.encode(item.more)
    times = (ms(item.created_at), ms(item.updated_at), ms(item.expires_at), ms(item.ttl_s))
    content, metadata = bytes(item.raw_content), bytes(item.raw_metadata)
    return (item.id, item.type, item.context, item.priority, content, metadata, item.version, *times, more)


def item_of_row(row: tuple[Any, ...], opener: Opener | None) -> Item:
    id_, type_, context, priority, content, metadata, version, created, updated, expires, ttl, more, *_ = row
    return Item(
        id=id_,
        type=type_,
        context=context,
        priority=priority,
        raw_content=content,
        raw_metadata=metadata,
        version=version,
        created_at=created / 1000,
        updated_at=updated / 1000,
        expires_at=expires / 1000,
        ttl_s=ttl / 1000,
        more=_decode_more(more) if more else USUAL,
        opener=opener,
        from_backup=True,
    )


def context_row(context: Context) -> tuple[Any, ...]:
    times = (ms(context.created_at), ms(context.updated_at), ms(context.expires_at), ms(context.ttl_s))
    known = (context.id, context.name, context.type, context.raw_metadata, context.version)
    return (*known, *times, context.at_end, int(context.is_active))


def context_of_row(row: tuple[Any, ...]) -> Context:
    id_, name, type_, metadata, version, created, updated, expires, ttl, at_end, is_active, *_ = row
    return Context(
        id=id_,
        name=name,
        type=type_,
        raw_metadata=metadata,
        version=version,
        created_at=created / 1000,
        updated_at=updated / 1000,
        expires_at=expires / 1000,
        ttl_s=ttl / 1000,
        at_end=at_end,
        is_active=bool(is_active),
        from_backup=True,
    )
