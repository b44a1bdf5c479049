"""What the server returns of items and contexts, as items and contexts. No I/O here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kizuna.memory.context import AtEnd, Context
from kizuna.memory.item import FIELDS, GLOBAL, USUAL, USUAL_PRIORITY, Item, More, Opener

_FIELDS = len(FIELDS)
_more = msgspec.json.Decoder(More).decode


def item_of(values: Sequence[bytes | None], opener: Opener | None, id_: str = "") -> Item | None:
    """The item whose FIELDS have these values, and whatever stands behind them; or None if there is none."""
    id_raw, type_, content, context, priority, created, expires, metadata, version, updated, life, more, number = (
        values[:_FIELDS]
    )
    if content is None or metadata is None:
        return _foreign_item(values[:_FIELDS], opener, id_)
    try:
        # As we write them. On the way of every item that is read, so without a detour.
        return Item(
            id_ or id_raw.decode(),  # type: ignore[union-attr]
            type_.decode(),  # type: ignore[union-attr]
            context.decode(),  # type: ignore[union-attr]
            int(priority),  # type: ignore[arg-type]
            content,
            metadata,
            int(version),  # type: ignore[arg-type]
            int(created) / 1000,  # type: ignore[arg-type]
            int(updated) / 1000,  # type: ignore[arg-type]
            int(expires) / 1000,  # type: ignore[arg-type]
            int(life) / 1000,  # type: ignore[arg-type]
            USUAL if more is None else _read_more(more, number),
            opener,
        )
    except (AttributeError, TypeError, ValueError):
        return _foreign_item(values[:_FIELDS], opener, id_)


def _foreign_item(values: Sequence[bytes | None], opener: Opener | None, id_: str) -> Item | None:
    """Whoever wrote it: what is missing, or cannot be read, is what it usually is."""
    id_raw, type_, content, context, priority, created, expires, metadata, version, updated, life, more, number = values
    if id_raw is None and type_ is None and content is None:
        return None
    created_ms = _number(created)
    return Item(
        id=id_ or _text(id_raw),
        type=_text(type_),
        context=GLOBAL if context is None else _text(context),
        priority=USUAL_PRIORITY if priority is None else whole(priority),
        raw_content=b"null" if content is None else content,
        raw_metadata=b"{}" if metadata is None else metadata,
        version=1 if version is None else whole(version),
        created_at=created_ms / 1000,
        updated_at=created_ms / 1000 if updated is None else _number(updated) / 1000,
        expires_at=_number(expires) / 1000,
        ttl_s=(_number(expires) - created_ms if life is None else _number(life)) / 1000,
        more=USUAL if more is None else _read_more(more, number),
        opener=opener,
    )


def context_of(values: Sequence[bytes | None], is_active: bool, id_: str = "") -> Context | None:
    """The context whose CONTEXT_FIELDS have these values, or None."""
    id_raw, name, type_, created, updated, expires, metadata, version, life, at_end = values
    if id_raw is None and name is None and type_ is None:
        return None
    created_ms = _number(created)
    rule: AtEnd = "leave" if at_end == b"leave" else "delete"
    return Context(
        id=id_ or _text(id_raw),
        name=_text(name),
        type=_text(type_),
        raw_metadata=b"{}" if metadata is None else metadata,
        version=1 if version is None else whole(version),
        created_at=created_ms / 1000,
        updated_at=created_ms / 1000 if updated is None else _number(updated) / 1000,
        expires_at=_number(expires) / 1000,
        ttl_s=(_number(expires) - created_ms if life is None else _number(life)) / 1000,
        at_end=rule,
        is_active=is_active,
    )


def _read_more(raw: bytes, number: bytes | None) -> More:
    try:
        more = _more(raw)
    except msgspec.MsgspecError:
        return USUAL
    return msgspec.structs.replace(more, generation_number=whole(number)) if number else more


def _text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode(errors="replace")


def _number(raw: Any) -> float:
    try:
        number = float(raw)
    except (TypeError, ValueError):
        return 0.0
    return number if abs(number) < 1e15 else 0.0


def whole(raw: bytes) -> int:
    try:
        return int(raw)
    except ValueError:
        return int(_number(raw))
