"""Contexts in the copy, while the server is away, and what becomes of their items when they end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kizuna.errors import ContextExists, ContextMissing, VersionConflict
from kizuna.memory.backup import journal
from kizuna.memory.backup.copying import end_context, forget_pass, put_context
from kizuna.memory.backup.file import CopyFile
from kizuna.memory.backup.items import SLACK_MS, Doubt, Rules
from kizuna.memory.backup.journal import Entry, Removal
from kizuna.memory.backup.rows import CONTEXT_COLUMNS, context_of_row, ms
from kizuna.memory.context import AtEnd, Context, ContextChange, ContextQuery, NewContext
from kizuna.memory.item import GLOBAL
from kizuna.memory.query import ContextPage


def find(file: CopyFile, id_: str) -> Context | None:
    sql = f"SELECT {CONTEXT_COLUMNS} FROM contexts WHERE id = ? AND NOT ended AND expires_ms > ?"
    row = file.run(sql, (id_, file.now_ms())).fetchone()
    return None if row is None else context_of_row(row)


def read(file: CopyFile, ids: Sequence[str]) -> list[Context | None]:
    return [find(file, id_) for id_ in ids]


def write(file: CopyFile, rules: Rules, new: NewContext, doubt: Doubt | None) -> Context:
    was = find(file, new.id)
    if was is not None and not (doubt and ms(was.created_at) >= doubt.since_ms - SLACK_MS):
        raise ContextExists(new.id)
    now_ms, life_ms = file.now_ms(), rules.life_ms("context", new.ttl_ms)
    context = was or Context(
        id=new.id,
        name=new.name,
        type=new.type,
        raw_metadata=new.metadata,
        version=1,
        created_at=now_ms / 1000,
        updated_at=now_ms / 1000,
        expires_at=(now_ms + life_ms) / 1000,
        ttl_s=life_ms / 1000,
        at_end=new.at_end,
        is_active=new.is_active,
        from_backup=True,
    )
    return _journalled(file, context, "write", 0, journal.packed(new), doubt)


def change(file: CopyFile, rules: Rules, change: ContextChange, doubt: Doubt | None) -> Context:
    was = _there(file, change.id)
    if change.expected_version not in (None, was.version):
        raise VersionConflict("context", change.id, change.expected_version or 0, was.version)
    now_ms = file.now_ms()
    life_ms = ms(was.ttl_s) if change.ttl_ms is None else rules.life_ms("context", change.ttl_ms)
    expires_ms = ms(was.expires_at)
    if change.is_active:
        expires_ms = max(expires_ms, now_ms + life_ms)
    elif change.ttl_ms is not None:
        expires_ms = now_ms + life_ms
    context = msgspec.structs.replace(
        was,
        name=change.name or was.name,
        type=change.type or was.type,
        raw_metadata=was.raw_metadata if change.metadata is None else change.metadata,
        version=was.version + 1,
        updated_at=now_ms / 1000,
        expires_at=expires_ms / 1000,
        ttl_s=life_ms / 1000,
        at_end=change.at_end or was.at_end,
        is_active=was.is_active if change.is_active is None else change.is_active,
    )
    return _journalled(file, context, "change", was.version, journal.packed(change), doubt)


def touch(file: CopyFile, rules: Rules, id_: str, ttl_ms: int | None) -> Context:
    was = _there(file, id_)
    life_ms = ms(was.ttl_s) if ttl_ms is None else rules.life_ms("context", ttl_ms)
    expires_ms = max(ms(was.expires_at), file.now_ms() + life_ms)
    context = msgspec.structs.replace(was, expires_at=expires_ms / 1000, ttl_s=life_ms / 1000)
    return _journalled(file, context, "touch", was.version, b"", None)


def remove(file: CopyFile, id_: str, items: AtEnd | None, doubt: Doubt | None) -> bool:
    was = find(file, id_)
    if was is None:
        return False
    journal.append(file, _entry(file, was, "remove", was.version, journal.packed(Removal(items)), doubt))
    end_context(file, id_)
    _end_items(file, id_, items or was.at_end)
    return True


def list_(file: CopyFile, query: ContextQuery) -> ContextPage:
    sql = f"SELECT {CONTEXT_COLUMNS} FROM contexts WHERE NOT ended AND expires_ms > ? AND id > ?"
    values: list[object] = [file.now_ms(), query.cursor]
    if query.type is not None:
        sql += " AND type = ?"
        values.append(query.type)
    if query.is_active is not None:
        sql += " AND is_active = ?"
        values.append(int(query.is_active))
    rows = file.run(f"{sql} ORDER BY id LIMIT ?", (*values, query.limit + 1)).fetchall()
    found = list(map(context_of_row, rows[: query.limit]))
    return ContextPage(contexts=found, cursor=found[-1].id if len(rows) > query.limit else "", from_backup=True)


def are_due(file: CopyFile) -> bool:
    """Whether contexts have ended by their time, and nobody has ended their items."""
    sql = "SELECT 1 FROM contexts WHERE expires_ms <= ? AND NOT ended LIMIT 1"
    return file.run(sql, (file.now_ms(),)).fetchone() is not None


def end_due(file: CopyFile) -> None:
    """As the server's sweeper would, if it is running. Whether it is, nobody knows: so the copy is made anew later."""
    sql = "SELECT id, at_end FROM contexts WHERE expires_ms <= ? AND NOT ended"
    for id_, at_end in file.run(sql, (file.now_ms(),)).fetchall():
        file.run("DELETE FROM contexts WHERE id = ?", (id_,))
        _end_items(file, id_, at_end)
        forget_pass(file)


def _end_items(file: CopyFile, id_: str, at_end: AtEnd) -> None:
    if at_end == "leave":
        sql = "UPDATE items SET context = ?, version = version + 1 WHERE context = ? AND NOT ended"
        file.run(sql, (GLOBAL, id_))
    else:
        # Gone without a trace: should they be there after all, the next pass brings them back.
        file.run("DELETE FROM items WHERE context = ? AND NOT ended", (id_,))


def _there(file: CopyFile, id_: str) -> Context:
    context = find(file, id_)
    if context is None:
        raise ContextMissing(id_)
    return context


def _journalled(
    file: CopyFile, context: Context, op: journal.Op, base_version: int, body: bytes, doubt: Doubt | None
) -> Context:
    journal.append(file, _entry(file, context, op, base_version, body, doubt))
    put_context(file, context)
    return context


def _entry(
    file: CopyFile, context: Context, op: journal.Op, base_version: int, body: bytes, doubt: Doubt | None
) -> Entry:
    is_ours = op == "write" or journal.was_created_here(file, "context", context.id)
    return Entry(
        what="context",
        id=context.id,
        op=op,
        base_version=base_version,
        base_created_ms=None if is_ours else ms(context.created_at),
        expires_ms=ms(context.expires_at),
        at_ms=file.now_ms() if doubt is None else doubt.since_ms,
        not_before_ms=0 if doubt is None else doubt.until_ms,
        body=body,
    )
