"""What the server has, put into the copy. Copies come late and in any order, so each is compared with what is there:
of two that were created at different times the later one counts, and else the one of the higher version; what has ended
counts as higher than any version. What is in the journal is not touched: there, the copy is ahead of the server.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kizuna.memory.backup import journal
from kizuna.memory.backup.file import CopyFile
from kizuna.memory.backup.rows import CONTEXT_COLUMNS, ITEM_COLUMNS, context_row, item_row, ms
from kizuna.memory.context import Context
from kizuna.memory.item import GLOBAL, Item

# Higher than any version.
_ENDED = 1 << 62
# Later than any time.
_LATEST = 1 << 62
# How long it is known that something has ended, after it would have ended anyway: copies come late, but not that late.
_REMEMBERED_MS = 60_000


class _Table:
    """What is run for items and for contexts alike."""

    def __init__(self, name: str, columns: str, /, **blank: str) -> None:
        """`blank`: what stands in the place of what nobody knows, or needs, of one that has ended."""
        written = f"INTO {name} ({columns}, ended, seen) VALUES ({', '.join('?' * len(columns.split(', ')))}, 0, ?)"
        values = ", ".join(f"{column} = excluded.{column}" for column in f"{columns}, ended, seen".split(", "))
        self.put = f"INSERT OR REPLACE {written}"
        """Whatever is there."""
        self.copy = (
            f"INSERT {written} ON CONFLICT (id) DO UPDATE SET {values}"
            f" WHERE (excluded.created_ms, excluded.version) >= ({name}.created_ms, {name}.version)"
        )
        """Unless what is there is newer."""
        self.copy_new = f"{self.copy} OR {name}.ended"
        emptied = ", ".join(f"{column} = {nothing}" for column, nothing in blank.items() if nothing == "x''")
        self.end = (
            f"UPDATE {name} SET ended = 1, {emptied}, version = ?, seen = ?, expires_ms = max(expires_ms, ?) + ?"
            " WHERE id = ? AND NOT ended AND created_ms <= ?"
        )
        self.note_ended = (
            f"INSERT OR IGNORE INTO {name} (id, version, created_ms, updated_ms, expires_ms, seen, ended, ttl_ms,"
            f" {', '.join(blank)}) VALUES (?, ?, ?, ?, ?, ?, 1, 0, {', '.join(blank.values())})"
        )


_ITEMS = _Table("items", ITEM_COLUMNS, type="''", context="''", priority="0", content="x''", metadata="x''", more="x''")
_CONTEXTS = _Table("contexts", CONTEXT_COLUMNS, name="''", type="''", metadata="x''", at_end="'delete'", is_active="0")


class ItemCopy(Struct, frozen=True):
    item: Item
    is_new: bool = False
    """It was just created: that one of its id has ended is past."""


class ItemEnded(Struct, frozen=True):
    id: str
    at_ms: int | None = None
    """When, if the server said so: one that was created later is another."""


class ContextCopy(Struct, frozen=True):
    context: Context
    is_new: bool = False


class ContextEnded(Struct, frozen=True):
    id: str
    at_ms: int | None = None


Copy = ItemCopy | ItemEnded | ContextCopy | ContextEnded


def size_of(copy: Copy) -> int:
    """About what it takes while it waits."""
    item = copy.item if isinstance(copy, ItemCopy) else None
    return 200 if item is None else 200 + len(item.raw_content) + len(item.raw_metadata)


def apply_all(file: CopyFile, copies: Iterable[Copy]) -> int:
    """Returns how many could not be copied: an outsider may have given an item a number that no database holds."""
    lost = 0
    number, nothing_journalled = pass_number(file), journal.is_empty(file)
    for copy in copies:
        try:
            if nothing_journalled or not _is_journalled(file, copy):
                _apply(file, copy, number)
        except OverflowError:
            lost += 1
    return lost


def _is_journalled(file: CopyFile, copy: Copy) -> bool:
    if isinstance(copy, ItemCopy):
        return journal.has(file, "item", copy.item.id)
    if isinstance(copy, ContextCopy):
        return journal.has(file, "context", copy.context.id)
    return journal.has(file, "item" if isinstance(copy, ItemEnded) else "context", copy.id)


def _apply(file: CopyFile, copy: Copy, number: int) -> None:
    if isinstance(copy, ItemCopy):
        file.run(_ITEMS.copy_new if copy.is_new else _ITEMS.copy, (*item_row(copy.item), number))
        _use_context_of(file, copy.item)
    elif isinstance(copy, ItemEnded):
        end_item(file, copy.id, copy.at_ms)
    elif isinstance(copy, ContextCopy):
        file.run(_CONTEXTS.copy_new if copy.is_new else _CONTEXTS.copy, (*context_row(copy.context), number))
    else:
        end_context(file, copy.id, copy.at_ms)


def put_item(file: CopyFile, item: Item) -> None:
    """Whatever was there."""
    file.run(_ITEMS.put, (*item_row(item), pass_number(file)))
    _use_context_of(file, item)


def put_context(file: CopyFile, context: Context) -> None:
    file.run(_CONTEXTS.put, (*context_row(context), pass_number(file)))


def end_item(file: CopyFile, id_: str, at_ms: int | None = None) -> None:
    """Its content goes, and that it has ended stays known for a while."""
    _end(file, _ITEMS, id_, at_ms)


def end_context(file: CopyFile, id_: str, at_ms: int | None = None) -> None:
    """Its items are told of one by one."""
    _end(file, _CONTEXTS, id_, at_ms)


def _end(file: CopyFile, table: _Table, id_: str, at_ms: int | None) -> None:
    now, number = file.now_ms(), pass_number(file)
    latest = _LATEST if at_ms is None else at_ms
    if file.run(table.end, (_ENDED, number, now, _REMEMBERED_MS, id_, latest)).rowcount == 0:
        at = now if at_ms is None else at_ms
        file.run(table.note_ended, (id_, _ENDED, at, at, now + _REMEMBERED_MS, number))


def _use_context_of(file: CopyFile, item: Item) -> None:
    """An active context lives its whole life again when one of its items is written or touched."""
    if item.context != GLOBAL:
        used_ms = max(ms(item.updated_at), ms(item.expires_at) - ms(item.ttl_s))
        file.run(
            "UPDATE contexts SET expires_ms = max(expires_ms, ? + ttl_ms) WHERE id = ? AND is_active AND NOT ended",
            (used_ms, item.context),
        )


# -- a pass over all that the server has ---------------------------------------------------------------------


def pass_number(file: CopyFile) -> int:
    """What is copied from now on was there after this pass had begun."""
    return int(file.fact("pass", 0))


def begin_pass(file: CopyFile) -> None:
    file.set_fact("pass", pass_number(file) + 1)
    file.set_fact("is_complete", 0)
    file.set_fact("dropped", 0)
    file.set_fact("gap", 0)


def end_pass(file: CopyFile, cursor: str) -> bool:
    """What was not seen in it is no longer there. Events after the cursor tell what happens from now on.

    False if it was forgotten meanwhile, and another one is needed."""
    if file.fact("gap", 0):
        return False
    number = pass_number(file)
    for table, what in (("items", "item"), ("contexts", "context")):
        file.run(
            f"DELETE FROM {table} WHERE seen < ? AND NOT ended"
            f" AND NOT EXISTS (SELECT 1 FROM journal WHERE what = ? AND journal.id = {table}.id)",
            (number, what),
        )
    note_cursor(file, cursor)
    file.set_fact("is_complete", 1)
    return True


def note_cursor(file: CopyFile, cursor: str) -> bool:
    """Everything until there is copied; False if there is a gap. The server's clock is noted as well: it may be needed
    before it is known."""
    file.set_fact("offset_ms", file.offset_ms)
    if file.fact("gap", 0):
        return False
    file.set_fact("cursor", cursor)
    return True


def forget_pass(file: CopyFile) -> None:
    """Something may be missing: the next one who follows looks at everything again. Whoever follows now, or is in the
    middle of a pass, may not undo this when he notes how far he came."""
    file.set_fact("gap", 1)
    file.set_fact("cursor", "")
    file.set_fact("is_complete", 0)


def is_complete(file: CopyFile) -> bool:
    """Whether what is not in the copy is not there at all, a moment ago."""
    return not file.has_gap and bool(file.fact("is_complete", 0)) and not file.fact("dropped", 0)
