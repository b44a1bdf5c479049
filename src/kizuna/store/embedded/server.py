"""The Valkey that comes along: started by the first process that needs it, shared by all, gone after the last.

A keeper process owns the server (`keeper.py`), the files of its folder are how everybody finds each other
(`folder.py`); here is the users' side of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kizuna.errors import ServerInUse, ServerNotStarted, ServiceStuck
from kizuna.store.embedded.folder import (
    FORCED,
    RETIRE,
    STOP,
    STOP_LIMIT_S,
    TELL,
    ServerFolder,
    is_held,
    is_still_at,
    last_lines,
    open_lock,
    release,
    try_lock,
)
from kizuna.store.embedded.keeper_start import start_keeper
from kizuna.store.embedded.setup import server_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kizuna.settings import EmbeddedSettings


LOOK_EVERY_S = 0.005
GRACE_S = 2.0
"""The keeper's own verdict comes after the start timeout; this much later we stop waiting for it."""
KEEPERS_TRIED = 5
"""A keeper that cannot even write what is wrong, as on a full disk, is not started for ever."""


class Running(NamedTuple):
    """Where the server is, and what it is."""

    host: str
    port: int
    pid: int
    keeper_pid: int
    folder: Path
    profile: str
    version: str
    started_at: float


class Status(NamedTuple):
    """How the server of a folder is, as far as can be told without using it."""

    state: str
    """starting, loading, ready, stopping, stopped or failed."""
    reason: str
    folder: Path
    host: str = ""
    port: int = 0
    pid: int = 0
    keeper_pid: int = 0
    profile: str = ""
    version: str = ""
    uptime_s: float = 0.0
    pinned: bool = False
    users: tuple[int, ...] = ()
    """Process ids; empty also where the system does not tell."""


class EmbeddedServer:
    """The server of one folder, as one user of it sees it."""

    def __init__(self, settings: EmbeddedSettings) -> None:
        self._settings = settings
        self._folder = ServerFolder(server_folder(settings.folder))
        self._users_lock: int | None = None
        self._start_id = ""
        self._turn = asyncio.Lock()

    async def attach(self) -> Running:
        """Use the server: it is started if need be, and stays until we detach or die. Twice is as good as once, so
        this is also how those who lost their connection find out where it is now.

        Raises ServerNotStarted, also if the server that we used was stopped by force: it is not for us, then, to
        start it again. When somebody else does, we find it.
        """
        async with self._turn:
            with self._folder_problems_told():
                return await self._attach()

    async def detach(self, *, stop_if_last: bool = True) -> None:
        """Leave. If nobody else uses the server and it is not pinned, it is gone when this returns.

        Raises ServiceStuck if it does not end; does nothing if we are not attached.
        """
        async with self._turn:
            if self._users_lock is None:
                return
            try:
                if stop_if_last and try_lock(self._users_lock, fcntl.LOCK_EX):
                    await self._see_out_unless_pinned()
            finally:
                self._leave()

    async def pin(self) -> Running:
        """Have the server stay without users, until `stop`. Raises ServerNotStarted."""
        was_attached = self._users_lock is not None
        running = await self.attach()
        self._folder.pin.touch()
        if not was_attached:
            await self.detach()
        return running

    async def stop(self, *, force: bool = False) -> bool:
        """Unpin and stop the server; False if none was running.

        Raises ServerInUse if it has users, unless forced; even then it is no longer pinned, and ends with the
        last of them. Raises ServiceStuck if it does not end.
        """
        if not self._folder.ask_keeper():
            return False
        self._folder.pin.unlink(missing_ok=True)
        if force:
            await self._end_keeper(STOP)
            return True
        users_lock = open_lock(self._folder.users_lock)
        try:
            if not await _lock_within(users_lock, fcntl.LOCK_EX, 10 * LOOK_EVERY_S):
                raise ServerInUse(str(self._folder.path), [_describe(pid) for pid in self._folder.users()])
            await self._end_keeper(RETIRE)
        finally:
            release(users_lock)
        return True

    def status(self) -> Status:
        alive, record = self._folder.ask_keeper(), self._folder.read_record()
        if not alive:
            failed = record.get("state") == "failed"
            reason = record.get("reason", "") if failed else ""
            return Status("failed" if failed else "stopped", reason, self._folder.path)
        facts = {name: record[name] for name in Status._fields if name in record}
        facts |= {"uptime_s": round(time.time() - record["started_at"], 1)} if record.get("pid") else {}
        return Status(
            **({"state": "starting", "reason": ""} | facts),
            folder=self._folder.path,
            pinned=self._folder.pin.exists(),
            users=tuple(self._folder.users()),
        )

    # Coming

    @contextlib.contextmanager
    def _folder_problems_told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ServerNotStarted(
                f"its folder cannot be used: {error}", "choose another one with KIZUNA_EMBEDDED__FOLDER"
            ) from error

    async def _attach(self) -> Running:
        if self._users_lock is not None and is_still_at(self._users_lock, self._folder.users_lock):
            return await self._until_ready()
        self._leave()
        self._folder.create()
        self._users_lock = await self._enter()
        try:
            return await self._until_ready()
        except BaseException:
            self._leave()
            raise

    async def _enter(self) -> int:
        """Our share of users.lock. It is refused while a server ends; then we wait for that."""
        gives_up_at = time.monotonic() + STOP_LIMIT_S + GRACE_S
        while time.monotonic() < gives_up_at:
            users_lock = open_lock(self._folder.users_lock)
            if try_lock(users_lock, fcntl.LOCK_SH) and is_still_at(users_lock, self._folder.users_lock):
                return users_lock
            os.close(users_lock)
            await asyncio.sleep(LOOK_EVERY_S)
        raise ServerNotStarted(
            f"the one on {self._folder.path} did not end within {STOP_LIMIT_S:g}s",
            f"look at {self._folder.keeper_log}",
        )

    async def _until_ready(self) -> Running:
        """Start a keeper whenever there is none, and wait for what it says."""
        started: list[str] = []
        patience = Patience(self._settings.start_timeout_s + GRACE_S)
        while True:
            # In this order: a keeper writes before it lives and before it dies, so what we read is no older.
            alive, record = self._folder.ask_keeper(), self._folder.read_record()
            self._respect_force(record)
            if alive and record.get("state") == "ready":
                return self._accept(record)
            if alive and not record:
                self._folder.ask_keeper(TELL)
            if not alive and not is_held(self._folder.keeper_lock):
                self._accept_failure(record, started)
                started.append(await asyncio.to_thread(start_keeper, self._folder, self._settings))
            patience.spend(alive, record, self._folder)
            await asyncio.sleep(LOOK_EVERY_S)

    def _respect_force(self, record: dict[str, Any]) -> None:
        if record.get("start_id") == self._start_id and record["reason"] == FORCED:
            raise ServerNotStarted(
                "it was stopped with `kizuna server stop --force`", "start it with `kizuna server start`"
            )

    def _accept(self, record: dict[str, Any]) -> Running:
        if self._settings.profile == "durable" and record["profile"] != "durable":
            raise ServerNotStarted(
                f"one with the profile {record['profile']} already runs on {self._folder.path}, and durable"
                " was asked for",
                "end its users or use `kizuna server stop`, or set KIZUNA_EMBEDDED__PROFILE=fast",
            )
        self._start_id = record["start_id"]
        facts = {name: record[name] for name in Running._fields if name in record}
        return Running(folder=self._folder.path, **facts)

    def _accept_failure(self, record: dict[str, Any], started: list[str]) -> None:
        """Only a keeper of our own can fail for us: what an earlier one said may no longer be so."""
        if record.get("state") == "failed" and record["start_id"] in started:
            raise ServerNotStarted(record["reason"], record["hint"])
        if len(started) >= KEEPERS_TRIED:
            words = last_lines(self._folder.keeper_log) or "nothing"
            raise ServerNotStarted(
                f"its keeper ends again and again, saying: {words}",
                f"is the disk full? Look at {self._folder.keeper_log}",
            )

    # Going

    def _leave(self) -> None:
        if self._users_lock is not None:
            release(self._users_lock)
            self._users_lock, self._start_id = None, ""

    async def _see_out_unless_pinned(self) -> None:
        """We hold users.lock exclusively: nobody can come or pin it before we are done."""
        if not self._folder.pin.exists():
            await self._end_keeper(RETIRE)

    async def _end_keeper(self, request: bytes) -> None:
        start_id = self._folder.read_record().get("start_id")
        self._folder.ask_keeper(request)
        gives_up_at = time.monotonic() + STOP_LIMIT_S + GRACE_S
        while self._is_kept_by(start_id):
            if time.monotonic() > gives_up_at:
                raise ServiceStuck(f"the embedded server on {self._folder.path}", STOP_LIMIT_S + GRACE_S)
            await asyncio.sleep(LOOK_EVERY_S)

    def _is_kept_by(self, start_id: str | None) -> bool:
        if self._folder.ask_keeper():
            return start_id in (None, self._folder.read_record().get("start_id"))
        # One that lost its keeper takes a moment to end, too.
        return is_held(self._folder.keeper_lock) or is_held(self._folder.server_lock)


class Patience:
    """Waits as long as something happens: for a server that loads much data, that can be long."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._seen: object = None
        self._since = time.monotonic()

    def spend(self, alive: bool, record: dict[str, Any], folder: ServerFolder) -> None:
        """Raises ServerNotStarted when nothing has changed for too long."""
        now, state = time.monotonic(), record.get("state")
        seen = (alive, record.get("start_id"), state, record.get("pid"))
        if seen != self._seen or state == "loading":
            self._seen, self._since = seen, now
        limit_s = max(self._limit_s, STOP_LIMIT_S) if state == "stopping" else self._limit_s
        if now - self._since > limit_s:
            raise ServerNotStarted(
                f"nothing happened for {limit_s:g}s (keeper {'alive' if alive else 'gone'}, state {state}),"
                f" its keeper said: {last_lines(folder.keeper_log)}",
                f"look at {folder.keeper_log}",
            )


async def _lock_within(fd: int, kind: int, limit_s: float) -> bool:
    """The keeper tries the lock for a moment now and then: one refusal does not mean that someone holds it."""
    gives_up_at = time.monotonic() + limit_s
    while time.monotonic() < gives_up_at:
        if try_lock(fd, kind):
            return True
        await asyncio.sleep(LOOK_EVERY_S)
    return False


def _describe(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return f"pid {pid}"
    return f"pid {pid} ({name})"
