"""What was written while the server was away, until it has happened there; and what of it could not."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from kizuna.memory.backup.file import CopyFile
from kizuna.memory.context import AtEnd, ContextChange, NewContext
from kizuna.memory.item import ItemChange, NewItem

What = Literal["item", "context"]
Op = Literal["write", "change", "touch", "remove"]

_COLUMNS = "what, id, op, base_version, base_created_ms, expires_ms, at_ms, not_before_ms, body"
# What a row takes beside its body, with its index, about.
_ROW_BYTES = 200


class Entry(Struct, frozen=True, kw_only=True):
    what: What
    id: str
    op: Op
    base_version: int
    """The version that it was based on; 0: there was none."""
    base_created_ms: int | None
    """When that had been created by the server; None: it was created here, or there was none."""
    expires_ms: int
    """The end that it was given by this."""
    at_ms: int
    """When it was asked for: of the server, if it is in doubt whether that has done it."""
    not_before_ms: int = 0
    """Until then, what was sent to the server before we gave up may still arrive there."""
    body: bytes = b""
    number: int = 0

    @property
    def is_in_doubt(self) -> bool:
        """Whether the server was asked for it before it went away, and may have done it."""
        return self.not_before_ms > 0


class Conflict(Struct, frozen=True, kw_only=True):
    """A write that was taken while the server was away, and could not happen when it was back."""

    what: What
    id: str
    op: Op
    base_version: int
    """The version that it was based on; 0: there was none."""
    at: float
    """When it was taken, and `found_at` when it turned out to be in conflict: seconds since the epoch."""
    found_at: float
    reason: str
    may_have_happened: bool
    """It was sent before the server went away, and its answer was lost. Others have changed it since: nobody can tell
    any more whether it is in what they changed."""
    body: bytes
    """What was to be written, as msgpack; content is sealed if it was."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: without what was to be written."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name != "body"}


class Removal(Struct, frozen=True):
    """How a context was removed."""

    items: AtEnd | None = None


Body = NewItem | ItemChange | NewContext | ContextChange | Removal | None

_TYPES: dict[tuple[What, Op], type[Struct]] = {
    ("item", "write"): NewItem,
    ("item", "change"): ItemChange,
    ("context", "write"): NewContext,
    ("context", "change"): ContextChange,
    ("context", "remove"): Removal,
}


def packed(body: Body) -> bytes:
    return b"" if body is None else msgspec.msgpack.encode(body)


def body_of(entry: Entry) -> Any:
    return msgspec.msgpack.decode(entry.body, type=_TYPES[entry.what, entry.op])


def token_of(entry: Entry) -> str:
    """By what it is known when it is repeated; nothing, if it may be repeated without."""
    body = body_of(entry) if entry.body else None
    return getattr(body, "token", "")


def append(file: CopyFile, entry: Entry) -> None:
    """BackupFull if there is no room for it."""
    # Twice: what is journalled stands in the copy as well, and stays there.
    file.make_room(2 * len(entry.body) + _ROW_BYTES)
    values = tuple(getattr(entry, name) for name in _COLUMNS.split(", "))
    file.run(f"INSERT INTO journal ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)", values)


def length(file: CopyFile) -> int:
    return int(file.run("SELECT count(*) FROM journal").fetchone()[0])


def is_empty(file: CopyFile) -> bool:
    return file.run("SELECT 1 FROM journal LIMIT 1").fetchone() is None


def has(file: CopyFile, what: What, id_: str) -> bool:
    """Whether something of it is journalled."""
    return file.run("SELECT 1 FROM journal WHERE what = ? AND id = ?", (what, id_)).fetchone() is not None


def last_number(file: CopyFile) -> int:
    return int(file.run("SELECT coalesce(max(number), 0) FROM journal").fetchone()[0])


def has_up_to(file: CopyFile, number: int) -> bool:
    """Whether something of that number, or below it, has not happened yet."""
    return file.run("SELECT 1 FROM journal WHERE number <= ? LIMIT 1", (number,)).fetchone() is not None


def first(file: CopyFile, most: int) -> list[Entry]:
    rows = file.run(f"SELECT {_COLUMNS}, number FROM journal ORDER BY number LIMIT ?", (most,))
    return [Entry(**dict(zip((*_COLUMNS.split(", "), "number"), row, strict=True))) for row in rows]


def ends_ms(file: CopyFile, entry: Entry) -> int:
    """When what it wrote ends, after all that was journalled later."""
    sql = "SELECT max(expires_ms) FROM journal WHERE what = ? AND id = ? AND number >= ?"
    return int(file.run(sql, (entry.what, entry.id, entry.number)).fetchone()[0] or entry.expires_ms)


def was_created_here(file: CopyFile, what: What, id_: str) -> bool:
    sql = "SELECT 1 FROM journal WHERE what = ? AND id = ? AND op = 'write' AND base_version = 0"
    return file.run(sql, (what, id_)).fetchone() is not None


def drop(file: CopyFile, entry: Entry) -> bool:
    """It has happened. Whether there is nothing more of the same item or context."""
    file.run("DELETE FROM journal WHERE number = ?", (entry.number,))
    return not has(file, entry.what, entry.id)


def move_to_conflicts(file: CopyFile, entry: Entry, reason: str) -> int:
    """It could not happen, and with it all that was based on it. Returns how many these are."""
    later = "FROM journal WHERE what = ? AND id = ? AND number >= ?"
    of = (entry.what, entry.id, entry.number)
    file.run(
        f"INSERT INTO conflicts ({_COLUMNS}, reason, found_ms) SELECT {_COLUMNS}, ?, ? {later}",
        (reason, file.now_ms(), *of),
    )
    return file.run(f"DELETE {later}", of).rowcount


def conflicts(file: CopyFile) -> list[Conflict]:
    """The oldest first."""
    columns = "what, id, op, base_version, at_ms, found_ms, reason, not_before_ms, body"
    return [
        Conflict(
            what=what,
            id=id_,
            op=op,
            base_version=base,
            at=at / 1000,
            found_at=found / 1000,
            reason=why,
            may_have_happened=not_before > 0,
            body=body,
        )
        for what, id_, op, base, at, found, why, not_before, body in file.run(
            f"SELECT {columns} FROM conflicts ORDER BY number"
        )
    ]


def forget_conflicts(file: CopyFile) -> int:
    return file.run("DELETE FROM conflicts").rowcount
