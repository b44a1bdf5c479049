"""Pages of items from the copy, in the server's order and with its cursors: a list that was begun there can be ended
here."""

from __future__ import annotations

from itertools import islice
from typing import Any

from kizuna.memory.backup.file import CopyFile
from kizuna.memory.backup.items import Rules
from kizuna.memory.backup.rows import ITEM_COLUMNS, item_of_row, ms
from kizuna.memory.listing import cursor_at, cursor_of, says
from kizuna.memory.query import Page, Query


def list_items(file: CopyFile, rules: Rules, query: Query) -> Page:
    """WrongValue if the cursor is from no page."""
    where, values = _conditions(query, file.now_ms())
    order = "DESC" if query.newest_first else "ASC"
    sql = f"SELECT {ITEM_COLUMNS} FROM items WHERE {where} ORDER BY created_ms {order}, id {order}"
    text = query.text.casefold() if query.text else ""
    found = (item_of_row(row, rules.opener) for row in file.run(sql, tuple(values)))
    fitting = list(islice((item for item in found if not text or says(item, text)), query.limit + 1))
    items = fitting[: query.limit]
    return Page(items=items, cursor=str(cursor_at(items[-1])) if len(fitting) > query.limit else "", from_backup=True)


def _conditions(query: Query, now_ms: int) -> tuple[str, list[Any]]:
    conditions: list[tuple[str, tuple[Any, ...]]] = [("NOT ended", ()), ("expires_ms > ?", (now_ms,))]
    if query.type is not None:
        conditions.append(("type = ?", (query.type,)))
    if query.context is not None:
        conditions.append(("context = ?", (query.context,)))
    if query.priority is not None:
        conditions.append(("priority BETWEEN ? AND ?", query.priority))
    if query.ends_after is not None:
        conditions.append(("expires_ms > ?", (ms(query.ends_after),)))
    if query.ends_before is not None:
        conditions.append(("expires_ms < ?", (ms(query.ends_before),)))
    if query.cursor:
        created_ms, id_ = cursor_of(query.cursor)
        after = "<" if query.newest_first else ">"
        conditions.append((f"(created_ms, id) {after} (?, ?)", (int(created_ms), id_)))
    return " AND ".join(sql for sql, _ in conditions), [value for _, values in conditions for value in values]
