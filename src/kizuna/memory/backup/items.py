"""Items in the copy, while the server is away: read, and changed as the server would. What is changed is journalled in
the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from kizuna.clock import milliseconds
from kizuna.errors import ContentSealed, ItemExists, ItemMissing, VersionConflict
from kizuna.memory.backup import journal
from kizuna.memory.backup.copying import end_item, put_item
from kizuna.memory.backup.file import CopyFile
from kizuna.memory.backup.journal import Entry
from kizuna.memory.backup.rows import ITEM_COLUMNS, item_of_row, ms
from kizuna.memory.item import Item, ItemChange, More, NewItem, Opener, is_sealed
from kizuna.memory.policy import Policy

_ITEM_FIELDS = (
    "id", "type", "context", "priority", "raw_content", "raw_metadata", "version", "created_at", "updated_at",
    "expires_at", "ttl_s", "more",
)  # fmt: skip
# What two clocks may differ, one of them asked a while ago.
SLACK_MS = 1_000


class Doubt(Struct, frozen=True):
    """The server was asked, and it is not known whether it has done it."""

    since_ms: int
    """When it was asked, by the server's clock."""
    until_ms: int
    """Until when it may still happen."""


class Rules(Struct, frozen=True):
    """What the server's scripts are told."""

    policy: Policy
    opener: Opener | None = None

    def life_ms(self, kind: str, ttl_ms: int) -> int:
        life = self.policy.lives[kind]
        return max(milliseconds(life.least_s), min(milliseconds(life.most_s), ttl_ms))


def find(file: CopyFile, rules: Rules, id_: str) -> Item | None:
    sql = f"SELECT {ITEM_COLUMNS} FROM items WHERE id = ? AND NOT ended AND expires_ms > ?"
    row = file.run(sql, (id_, file.now_ms())).fetchone()
    return None if row is None else item_of_row(row, rules.opener)


def read(file: CopyFile, rules: Rules, ids: Sequence[str]) -> list[Item | None]:
    return [find(file, rules, id_) for id_ in ids]


def write(file: CopyFile, rules: Rules, new: NewItem, doubt: Doubt | None) -> Item:
    was = find(file, rules, new.id)
    if was is not None and doubt is not None and _is_it(was, new, doubt):
        return _journalled(file, was, "write", was.version - 1, None, journal.packed(new), doubt)
    if was is not None and not new.replaces:
        raise ItemExists(new.id)
    item = _written(file, rules, new, was)
    base = 0 if was is None else was.version
    return _journalled(file, item, "write", base, was, journal.packed(new), doubt)


def change(file: CopyFile, rules: Rules, change: ItemChange, doubt: Doubt | None) -> Item:
    was = _there(file, rules, change.id)
    body = journal.packed(change)
    if doubt is not None and _is_done(was, change, doubt):
        return _journalled(file, was, "change", was.version - 1, was, body, doubt)
    if change.expected_version not in (None, was.version):
        raise VersionConflict("item", change.id, change.expected_version or 0, was.version)
    if change.content and not change.unseals and was.is_sealed and not is_sealed(change.content):
        raise ContentSealed(change.id)
    return _journalled(file, _changed(file, rules, was, change), "change", was.version, was, body, doubt)


def touch(file: CopyFile, rules: Rules, id_: str, ttl_ms: int | None) -> Item:
    was = _there(file, rules, id_)
    life = rules.life_ms(was.kind, ms(was.ttl_s) if ttl_ms is None else ttl_ms)
    expires_ms = max(ms(was.expires_at), file.now_ms() + life)
    item = _like(was, expires_at=expires_ms / 1000)
    return _journalled(file, item, "touch", was.version, was, b"", None)


def remove(file: CopyFile, rules: Rules, id_: str, expected_version: int | None, doubt: Doubt | None) -> bool:
    was = find(file, rules, id_)
    if was is None:
        # In doubt, it was we who ended it.
        return doubt is not None and _is_known_to_have_ended(file, id_)
    if expected_version not in (None, was.version):
        raise VersionConflict("item", id_, expected_version or 0, was.version)
    journal.append(file, _entry(file, was, "remove", was.version, was, b"", doubt))
    end_item(file, id_)
    return True


def _is_known_to_have_ended(file: CopyFile, id_: str) -> bool:
    return file.run("SELECT 1 FROM items WHERE id = ? AND ended", (id_,)).fetchone() is not None


def _there(file: CopyFile, rules: Rules, id_: str) -> Item:
    item = find(file, rules, id_)
    if item is None:
        raise ItemMissing(id_)
    return item


def _journalled(
    file: CopyFile, item: Item, op: journal.Op, base_version: int, was: Item | None, body: bytes, doubt: Doubt | None
) -> Item:
    journal.append(file, _entry(file, item, op, base_version, was, body, doubt))
    put_item(file, item)
    return item


def _entry(
    file: CopyFile, item: Item, op: journal.Op, base_version: int, was: Item | None, body: bytes, doubt: Doubt | None
) -> Entry:
    # Created here, it has yet to be told by the server when that was.
    is_ours = was is None or journal.was_created_here(file, "item", item.id)
    return Entry(
        what="item",
        id=item.id,
        op=op,
        base_version=base_version,
        base_created_ms=None if is_ours or was is None else ms(was.created_at),
        expires_ms=ms(item.expires_at),
        at_ms=file.now_ms() if doubt is None else doubt.since_ms,
        not_before_ms=0 if doubt is None else doubt.until_ms,
        body=body,
    )


def _written(file: CopyFile, rules: Rules, new: NewItem, was: Item | None) -> Item:
    now_ms, life_ms = file.now_ms(), rules.life_ms(new.more.kind, new.ttl_ms)
    return Item(
        id=new.id,
        type=new.type,
        context=new.context,
        priority=new.priority,
        raw_content=new.content,
        raw_metadata=new.metadata,
        version=1 if was is None else was.version + 1,
        created_at=now_ms / 1000 if was is None else was.created_at,
        updated_at=now_ms / 1000,
        expires_at=(now_ms + life_ms) / 1000,
        ttl_s=life_ms / 1000,
        more=new.more,
        opener=rules.opener,
        from_backup=True,
    )


def _changed(file: CopyFile, rules: Rules, was: Item, change: ItemChange) -> Item:
    now_ms = file.now_ms()
    life_ms = ms(was.ttl_s) if change.ttl_ms is None else rules.life_ms(was.kind, change.ttl_ms)
    return _like(
        was,
        raw_content=was.raw_content if change.content is None else change.content,
        raw_metadata=was.raw_metadata if change.metadata is None else change.metadata,
        type=change.type or was.type,
        context=change.to_context or was.context,
        priority=was.priority if change.priority is None else change.priority,
        version=was.version + 1,
        updated_at=now_ms / 1000,
        expires_at=was.expires_at if change.ttl_ms is None else (now_ms + life_ms) / 1000,
        ttl_s=life_ms / 1000,
    )


def _like(was: Item, **others: Any) -> Item:
    known: dict[str, Any] = {name: getattr(was, name) for name in _ITEM_FIELDS}
    return Item(**{**known, **others}, opener=was._opener, from_backup=True)  # noqa: SLF001 - the same item, changed


def _is_it(item: Item, new: NewItem, doubt: Doubt) -> bool:
    """Whether this is what we asked the server for: it did it, and the copy heard of that before we did."""
    wanted = (new.type, new.context, new.priority, new.content, new.metadata, _without_number(new.more))
    is_ = (item.type, item.context, item.priority, item.raw_content, item.raw_metadata, _without_number(item.more))
    return _is_recent(item, doubt) and wanted == is_


def _is_done(item: Item, change: ItemChange, doubt: Doubt) -> bool:
    wanted = (change.content, change.metadata, change.type, change.to_context, change.priority)
    is_ = (item.raw_content, item.raw_metadata, item.type, item.context, item.priority)
    version_fits = change.expected_version in (None, item.version - 1)
    return _is_recent(item, doubt) and version_fits and all(w in (None, i) for w, i in zip(wanted, is_, strict=True))


def _is_recent(item: Item, doubt: Doubt) -> bool:
    return ms(item.updated_at) >= doubt.since_ms - SLACK_MS


def _without_number(more: More) -> More:
    return msgspec.structs.replace(more, generation_number=0)
