"""The file of the copy: opened, recognised, kept within its bound. Used by one thread only.

One file is shared by all processes of a machine that have the same folder, root and server: each transaction is short.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kizuna.errors import BackupDamaged, BackupFull, BackupNotWritten, KizunaError
from kizuna.memory.backup.schema import APPLICATION, LAYOUT, TABLES

if TYPE_CHECKING:
    from kizuna.store.client import Store

# How long another process may take for its transaction before ours is given up.
_BUSY_S = 5.0
# Some pages are needed for indexes and for the change itself.
_ROOM_BYTES = 64 * 1024
# Rows that are dropped at once, to make room.
_DROPPED_AT_ONCE = 256
_NOT_WHOLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_WAL_BYTES = 4 * 1024 * 1024


def file_name(store: Store) -> str:
    """One for each root and server: whatever leads to another memory makes another name."""
    settings, target = store.settings, store.target
    root = settings.roots.memory
    place = (target.kind, sorted(map(str, target.addresses)), target.primary_name, target.database)
    where = (settings.embedded.folder, settings.embedded.port) if target.kind == "embedded" else ()
    digest = hashlib.sha256(repr((root, settings.memory.shards, place, where)).encode()).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9._-]', '-', root)[:40]}-{digest[:12]}.sqlite3"


class CopyFile:
    """An open file. Every error of SQLite leaves it as a KizunaError that says which file, and why."""

    def __init__(self, path: Path, connection: sqlite3.Connection, largest_bytes: int) -> None:
        self.path = path
        self.offset_ms = 0
        """What the server's clock is ahead of ours."""
        self.has_gap = False
        """Something could not be copied, and not even that could be noted yet."""
        self._connection = connection
        self._largest_bytes = largest_bytes
        self._page_bytes = int(connection.execute("PRAGMA page_size").fetchone()[0])

    @classmethod
    def open(cls, path: Path, largest_bytes: int) -> Self:
        """BackupNotWritten if it cannot be made or written, BackupDamaged if it is not whole, or not ours."""
        _make(path)
        with saying_why(path):
            connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
            try:
                _prepare(path, connection)
                file = cls(path, connection, largest_bytes)
                file.offset_ms = file.fact("offset_ms", 0)
            except BaseException:
                connection.close()
                raise
        return file

    def close(self) -> None:
        with saying_why(self.path):
            self._connection.close()

    def now_ms(self) -> int:
        """By the server's clock, as far as it is known."""
        return int(time.time() * 1000) + self.offset_ms

    def run(self, sql: str, values: tuple[Any, ...] | dict[str, Any] = ()) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)

    def run_all(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        self._connection.executemany(sql, rows)

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._transaction("BEGIN"):
            yield

    @contextmanager
    def writing(self, *, durably: bool = False) -> Iterator[None]:
        """`durably`: when it has ended, it is on the disk."""
        with saying_why(self.path):
            self.run(f"PRAGMA synchronous = {'FULL' if durably else 'NORMAL'}")
        with self._transaction("BEGIN IMMEDIATE"):
            yield

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with saying_why(self.path):
            self.run(begin)
            try:
                yield
                self.run("COMMIT")
            except BaseException:
                # A full disk has rolled it back already.
                if self._connection.in_transaction:
                    self.run("ROLLBACK")
                raise

    # -- what is known about the copy ---------------------------------------------------------------------

    def fact(self, name: str, default: Any) -> Any:
        row = self.run("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return default if row is None else row[0]

    def set_fact(self, name: str, value: Any) -> None:
        self.run("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    # -- its bound ----------------------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        pages = self.run("PRAGMA page_count").fetchone()[0] - self.run("PRAGMA freelist_count").fetchone()[0]
        return int(pages) * self._page_bytes

    def keep_bound(self) -> None:
        """Drop what ends soonest until there is room again."""
        if self._too_much(_ROOM_BYTES) > 0:
            self.drop_ended()
            # A little more, so that the next one need not do it again.
            while (excess := self._too_much(2 * _ROOM_BYTES)) > 0 and self._drop_soonest(excess):
                pass

    def make_room(self, size: int) -> None:
        """For something that must not be dropped. BackupFull if all that may be dropped was, and it does not fit."""
        if self._too_much(size + _ROOM_BYTES) <= 0:
            return
        self.drop_ended()
        while (excess := self._too_much(size + _ROOM_BYTES)) > 0:
            if not self._drop_soonest(excess):
                raise BackupFull(str(self.path), self._largest_bytes)

    def _too_much(self, more: int) -> int:
        """How many bytes would be above the bound with so many more."""
        return self.used_bytes + more - self._largest_bytes

    def drop_ended(self) -> None:
        now = self.now_ms()
        self.run(f"DELETE FROM items WHERE expires_ms <= ? AND {_NOT_JOURNALLED}", (now,))
        self.run("DELETE FROM contexts WHERE expires_ms <= ? AND ended", (now,))
        self.run("DELETE FROM spilled WHERE expires_ms <= ?", (now,))

    def _drop_soonest(self, excess: int) -> bool:
        """About so many bytes, of copies, spilled ones and what is left of ended ones alike; what is journalled stays.
        False if there is nothing that may be dropped."""
        soonest = self.run(_SOONEST, (_DROPPED_AT_ONCE,)).fetchall()
        dropped: dict[str, list[tuple[str]]] = {"items": [], "spilled": []}
        for table, id_, size, _ in soonest:
            if excess <= 0:
                break
            dropped[table].append((id_,))
            excess -= size
        for table, ids in dropped.items():
            self.run_all(f"DELETE FROM {table} WHERE id = ?", ids)
        self.set_fact("dropped", 1)
        return bool(soonest)


_NOT_JOURNALLED = "NOT EXISTS (SELECT 1 FROM journal WHERE what = 'item' AND journal.id = items.id)"
# With what a row takes beside, in its indexes too, about.
_SIZE = "length(content) + length(metadata) + 300"
_SOONEST = (
    f"SELECT 'items', id, {_SIZE}, expires_ms FROM items WHERE {_NOT_JOURNALLED}"
    f" UNION ALL SELECT 'spilled', id, {_SIZE}, expires_ms FROM spilled ORDER BY expires_ms LIMIT ?"
)


@contextmanager
def saying_why(path: Path) -> Iterator[None]:
    """What SQLite says, in our words."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(path, error) from error


def _translated(path: Path, error: sqlite3.Error) -> KizunaError:
    # The lower byte is the kind, whatever more is known.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _NOT_WHOLE:
        return BackupDamaged(str(path), f"{error}; remove it, and a new copy is made")
    if code == sqlite3.SQLITE_FULL:
        return BackupNotWritten(str(path), "the disk is full; make room on it, or set memory.backup_folder elsewhere")
    if code == sqlite3.SQLITE_BUSY:
        return BackupNotWritten(str(path), f"another process has held it for {_BUSY_S:g}s")
    return BackupNotWritten(str(path), f"{error}")


def _make(path: Path) -> None:
    """For nobody's eyes but ours, from its first moment on; what SQLite puts beside it takes after it."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        hint = "make the folder writable, or set memory.backup_folder to another"
        raise BackupNotWritten(str(path), f"{error.strerror}; {hint}") from error


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    # Before anything is written to it.
    _is_ours(path, connection)
    _write_ahead(connection)
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _is_ours(path, connection):
            _make_tables(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Several processes may begin at once, and for this change SQLite does not wait for the others by itself."""
    ends_at = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > ends_at:
                raise
            time.sleep(0.01)
        else:
            return


def _is_ours(path: Path, connection: sqlite3.Connection) -> bool:
    """False if it is empty. BackupDamaged if it is something else than a copy that we can read."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    layout = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == APPLICATION and layout == LAYOUT:
        return True
    if application == APPLICATION:
        raise BackupDamaged(str(path), f"it has layout {layout}, and this version of kizuna reads {LAYOUT}")
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise BackupDamaged(str(path), "it is somebody else's; set memory.backup_folder to another folder")
    return False


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in filter(str.strip, TABLES.split(";")):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {LAYOUT}")
