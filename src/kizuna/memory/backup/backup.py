"""The copy of a memory on this machine: opens it, keeps it, and says what is in it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from kizuna.errors import StoreError
from kizuna.memory.backup import copying, journal
from kizuna.memory.backup.file import CopyFile, file_name
from kizuna.memory.backup.following import Following
from kizuna.memory.backup.items import Rules
from kizuna.memory.backup.keeper import BackupKeeper
from kizuna.memory.backup.replay import Replayed, Replayer
from kizuna.memory.backup.rows import ITEM_COLUMNS, item_of_row, item_row
from kizuna.memory.backup.silence import is_away
from kizuna.memory.backup.thread import CopyThread
from kizuna.memory.policy import Policy
from kizuna.metrics import Measure

if TYPE_CHECKING:
    from kizuna.memory.backup.journal import Conflict
    from kizuna.memory.events import FeedReader
    from kizuna.memory.item import Item, Opener
    from kizuna.memory.server_keeper import ServerKeeper
    from kizuna.store.client import Store


class Contents(Struct, frozen=True, kw_only=True):
    """What is in the file."""

    items: int = 0
    contexts: int = 0
    journalled: int = 0
    conflicts: int = 0
    spilled: int = 0
    used_bytes: int = 0
    is_complete: bool = False
    """Whether what is not in it was not on the server either, a moment ago."""


class Backup:
    """Made from the settings, with `memory.backup_folder`; does nothing until it is opened."""

    def __init__(self, store: Store, server: ServerKeeper, feed: FeedReader, opener: Opener | None) -> None:
        settings = store.settings.memory
        path = Path(settings.backup_folder).expanduser() / file_name(store)
        self.path = path
        self.thread = CopyThread(path, settings.backup_bytes)
        self.keeper = BackupKeeper(self.thread, Rules(Policy(settings), opener))
        self.following = Following(server, feed, self.thread, path.with_suffix(".following"))
        self.replayer = Replayer(server, self.thread, path.with_suffix(".replaying"))
        self.replayed = Replayed()
        """All that this process has replayed so far."""
        self.last_seen = Contents()
        """As of when `contents` was last asked for."""
        self._store, self._opener = store, opener

    async def open(self) -> None:
        """BackupDamaged, BackupNotWritten. Harmless when repeated."""
        await self.thread.open()

    async def aclose(self) -> None:
        """What waits to be copied is copied first."""
        await self.thread.aclose()

    async def ask_time(self, timeout_s: float) -> None:
        """A sign of life from every primary, and what time it is there. StoreError if there is none."""
        began, asked_at = time.time(), asyncio.get_running_loop().time()
        try:
            replies = await self._store.call_each_primary("TIME", timeout_s=timeout_s)
        except StoreError as error:
            # It lives if it does not like something; or if it has very much of ours to answer before this question.
            if is_away(error) and not self._store.has_heard_since(asked_at):
                raise
            return
        here = (began + time.time()) / 2
        there = [int(seconds) + int(microseconds) / 1e6 for seconds, microseconds in replies.values()]
        self.thread.set_clock(round((sum(there) / len(there) - here) * 1000))

    async def replay(self, up_to: int | None = None, *, for_s: float = math.inf) -> Replayed:
        """What is journalled happens on the server: everything up to that number, or all. See `Replayer.replay`."""
        done = await self.replayer.replay(up_to, for_s=for_s)
        total = self.replayed
        total.done, total.expired = total.done + done.done, total.expired + done.expired
        total.conflicts += done.conflicts
        return done

    # -- what is in it ------------------------------------------------------------------------------------

    async def pending(self) -> int:
        """How many writes have not happened on the server yet."""
        return await self.thread.do(journal.length)

    async def conflicts(self) -> list[Conflict]:
        """What was taken while the server was away, and could not happen there; the oldest first."""
        await self.open()
        return await self.thread.do(journal.conflicts)

    async def forget_conflicts(self) -> int:
        """How many there were."""
        await self.open()
        return await self.thread.do(journal.forget_conflicts, "note")

    async def spill(self, items: Sequence[Item]) -> None:
        """Keep these, which are about to be removed from the server: when this returns, they are on the disk."""
        await self.open()
        await self.thread.do(lambda file: _spill(file, items), "note", durably=True)

    async def spilled(self) -> list[Item]:
        """What had to make room on the server and has not ended yet, what ends soonest first."""
        await self.open()
        return await self.thread.do(self._read_spilled)

    async def contents(self) -> Contents:
        self.last_seen = await self.thread.do(_contents)
        return self.last_seen

    def measures(self, *, works: bool = True, is_away: bool = False) -> Iterator[Measure]:
        """As of when `contents` was last asked for; nothing is read here."""
        seen, name = self.last_seen, "kizuna_memory_backup"
        works = works and self.thread.problem is None
        yield Measure("gauge", f"{name}_answers", "1 while the copy answers because the server is away.", int(is_away))
        yield Measure("gauge", f"{name}_works", "0 while copies cannot be written.", int(works))
        yield Measure("gauge", f"{name}_complete", "1 if the copy has all that the server has.", int(seen.is_complete))
        yield Measure("gauge", f"{name}_bytes", "What the copy takes on the disk.", seen.used_bytes)
        yield Measure("gauge", f"{name}_items", "Items in the copy.", seen.items)
        yield Measure("gauge", f"{name}_contexts", "Contexts in the copy.", seen.contexts)
        yield Measure("gauge", f"{name}_spilled", "Items that made room on the server.", seen.spilled)
        yield Measure("gauge", f"{name}_pending", "Writes that wait for the server.", seen.journalled)
        yield Measure("gauge", f"{name}_conflicts", "Writes that could not happen there.", seen.conflicts)
        yield Measure("counter", f"{name}_lost_total", "Copies that were not written.", self.thread.lost)
        yield Measure("counter", f"{name}_replayed_total", "Writes that happened later.", self.replayed.done)
        yield Measure("counter", f"{name}_expired_total", "Writes that had ended by then.", self.replayed.expired)

    def _read_spilled(self, file: CopyFile) -> list[Item]:
        sql = f"SELECT {ITEM_COLUMNS} FROM spilled WHERE expires_ms > ? ORDER BY expires_ms, id"
        return [item_of_row(row, self._opener) for row in file.run(sql, (file.now_ms(),))]


def _spill(file: CopyFile, items: Sequence[Item]) -> None:
    rows = [item_row(item) for item in items]
    file.run_all(f"INSERT OR REPLACE INTO spilled ({ITEM_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", rows)
    file.keep_bound()


def _contents(file: CopyFile) -> Contents:
    now = file.now_ms()

    def count(sql: str, *values: int) -> int:
        return int(file.run(f"SELECT count(*) FROM {sql}", values).fetchone()[0])

    return Contents(
        items=count("items WHERE NOT ended AND expires_ms > ?", now),
        contexts=count("contexts WHERE NOT ended AND expires_ms > ?", now),
        journalled=journal.length(file),
        conflicts=count("conflicts"),
        spilled=count("spilled WHERE expires_ms > ?", now),
        used_bytes=file.used_bytes,
        is_complete=copying.is_complete(file),
    )
