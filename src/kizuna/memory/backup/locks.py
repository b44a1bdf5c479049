"""Kernel locks on files beside the copy: who follows the feed, who replays the journal. A process that dies lets go."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kizuna.errors import BackupNotWritten


def try_take(path: Path) -> int | None:
    """A descriptor that holds the lock until it is closed; None if somebody else does."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BackupNotWritten(str(path), f"{error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


@contextmanager
def tried(path: Path) -> Iterator[bool]:
    """Whether it is ours for the length of the block."""
    lock = try_take(path)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)
