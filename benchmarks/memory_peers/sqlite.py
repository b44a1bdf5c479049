"""SQLite in the same process: a table with the same four indexes, a write-ahead log, synced now and then.

It holds up its process while it works, so that many callers are no more than one. No other machine can ask it.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from benchmarks.memory_peers.payload import CONTENT, METADATA, TTL_S, Draft
from benchmarks.peer_roles import FOLDER, LOOP

SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE items (
    id TEXT PRIMARY KEY, type TEXT, content TEXT, context TEXT, priority INTEGER,
    created_at INTEGER, updated_at INTEGER, expires_at INTEGER, metadata TEXT, version INTEGER
) WITHOUT ROWID;
CREATE INDEX by_type ON items (type);
CREATE INDEX by_context ON items (context, created_at);
CREATE INDEX by_priority ON items (priority, created_at);
CREATE INDEX by_expiry ON items (expires_at);
"""
CREATE = "INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1)"
GET = "SELECT content FROM items WHERE id = ? AND expires_at > ?"
UPDATE = "UPDATE items SET content = ?, updated_at = ?, version = version + 1 WHERE id = ? AND expires_at > ?"
LIST = "SELECT content FROM items WHERE context = ? AND expires_at > ? ORDER BY created_at LIMIT 50"
DELETE = "DELETE FROM items WHERE id = ?"


class Sqlite:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    async def create(self, new: Draft) -> str:
        row = _row(new)
        self._database.execute(CREATE, row)
        return row[0]

    async def get(self, id: str) -> Any:  # noqa: A002
        return self._content(id)

    async def update(self, id: str, content: Any) -> None:  # noqa: A002
        now = _now_ms()
        self._database.execute(UPDATE, (json.dumps(content), now, id, now))

    async def list(self, context: str) -> Sequence[Any]:
        return [json.loads(content) for (content,) in self._database.execute(LIST, (context, _now_ms()))]

    async def delete(self, id: str) -> None:  # noqa: A002
        self._database.execute(DELETE, (id,))

    async def create_many(self, new: Sequence[Draft]) -> Sequence[str]:
        rows = [_row(each) for each in new]
        with self._transaction():
            self._database.executemany(CREATE, rows)
        return [row[0] for row in rows]

    async def get_many(self, ids: Sequence[str]) -> Sequence[Any]:
        return [self._content(each) for each in ids]

    async def delete_many(self, ids: Sequence[str]) -> None:
        with self._transaction():
            self._database.executemany(DELETE, [(each,) for each in ids])

    async def clear(self) -> None:
        self._database.execute("DELETE FROM items")
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _content(self, item_id: str) -> Any:
        found = self._database.execute(GET, (item_id, _now_ms())).fetchone()
        return json.loads(found[0]) if found else None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN")
        yield
        self._database.execute("COMMIT")


def _row(new: Draft) -> tuple[str, str, str, str, int, int, int, int, str]:
    now = _now_ms()
    return (
        str(uuid.uuid4()), new.type, json.dumps(CONTENT), new.context, new.priority,
        now, now, now + TTL_S * 1000, json.dumps(METADATA),
    )  # fmt: skip


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def remembering() -> AsyncIterator[Sqlite]:
    database = sqlite3.connect(FOLDER / f"memory-{LOOP}.sqlite", isolation_level=None)
    database.executescript(SCHEMA)
    yield Sqlite(database)
    database.close()
