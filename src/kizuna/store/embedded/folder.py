"""The folder of an embedded server: what its keeper and its users leave there for each other.

    valkey.conf    written anew at each start
    data/          what the server keeps: append-only file and snapshots
    server.json    what the keeper says about the server
    keeper.fifo    what users ask the keeper; it has a reader exactly while a keeper lives
    pinned         present while the server is to stay without users
    server.log, keeper.log

    keeper.lock    held by the keeper            never two keepers on one folder
    server.lock    held by the server            never two servers on one folder
    users.lock     shared by all users           who gets it exclusively knows that nobody uses the server

The locks are those of `flock`: the kernel lets go of them when their holder dies, however it dies.

The keeper imports this and must be up in a blink: the standard library only, and not all of that.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

LOG_LIMIT_BYTES = 8 * 1024 * 1024

STOP_LIMIT_S = 30.0
"""How long a server may take to end before its keeper kills it. All that it acknowledged is in its file by then."""

FORCED = "forced"
"""In the record, why it was stopped: its users may not start it again."""

RETIRE, STOP, TELL = b"retire", b"stop", b"tell"
"""To the keeper: stop, I hold users.lock exclusively; stop, whoever uses it; write server.json again."""


class ServerFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.configuration = path / "valkey.conf"
        self.data = path / "data"
        self.server_log = path / "server.log"
        self.keeper_log = path / "keeper.log"
        self.pin = path / "pinned"
        self.keeper_lock = path / "keeper.lock"
        self.server_lock = path / "server.lock"
        self.users_lock = path / "users.lock"
        self._record = path / "server.json"
        self._requests = path / "keeper.fifo"

    def create(self) -> None:
        """For the user alone, unless it was there before. Raises OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.data.mkdir(mode=0o700, exist_ok=True)

    def write(self, file: Path, text: str) -> None:
        """Readers see the old or the new text, never a part."""
        unfinished = file.with_name(f"{file.name}.new")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(file)

    def write_record(self, record: dict[str, Any]) -> None:
        self.write(self._record, json.dumps(record))

    def read_record(self) -> dict[str, Any]:
        """What the last keeper said; empty if that is missing, or is no record at all."""
        try:
            record = json.loads(self._record.read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return {}
        return record if isinstance(record, dict) and "keeper_pid" in record else {}

    def open_requests(self) -> tuple[int, int]:
        """For the keeper: from here on it is alive to all users."""
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self._requests, 0o600)
        reader = os.open(self._requests, os.O_RDONLY | os.O_NONBLOCK)
        # A writer of our own: without any, the reader would report its end again and again.
        return reader, os.open(self._requests, os.O_WRONLY | os.O_NONBLOCK)

    def ask_keeper(self, request: bytes = b"") -> bool:
        """Ask it, or look whether it is there. False: no keeper lives."""
        try:
            writer = os.open(self._requests, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENOENT, errno.ENOTDIR):
                return False
            raise
        try:
            if request:
                os.write(writer, request + b"\n")
        finally:
            os.close(writer)
        return True

    def users(self) -> list[int]:
        """Process ids of those who use the server; empty also where the system does not tell."""
        try:
            inode = str(self.users_lock.stat().st_ino)
            lines = Path("/proc/locks").read_text().splitlines()
        except FileNotFoundError:
            return []
        # 1: FLOCK  ADVISORY  READ 5859 fe:00:9978248 0 EOF
        locks = [line.split() for line in lines if "FLOCK" in line and "->" not in line]
        return sorted({int(lock[4]) for lock in locks if lock[3] == "READ" and lock[5].split(":")[-1] == inode})


def open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def try_lock(fd: int, kind: int) -> bool:
    """Take the lock if that is possible at once. A lock already held is changed, or lost if it cannot be."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def release(fd: int) -> None:
    # Unlocked and not only closed: a forked child may have the descriptor, and with it the lock, too.
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def is_held(lock_file: Path) -> bool:
    """By anyone, exclusively."""
    try:
        fd = os.open(lock_file, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def is_still_at(fd: int, path: Path) -> bool:
    """False if the file was removed or replaced: others would then lock another file than we do."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def open_log(path: Path) -> BinaryIO:
    """Open for more lines. A long log is put aside first, and replaces the one put aside before."""
    if path.exists() and path.stat().st_size > LOG_LIMIT_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def last_lines(log: Path, *, since: int = 0, count: int = 3) -> str:
    """The end of a log on one line, for an error message."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(since, size - 2000))
        lines = file.read().decode(errors="replace").splitlines()
    return " | ".join(line.strip() for line in lines[-count:] if line.strip())
