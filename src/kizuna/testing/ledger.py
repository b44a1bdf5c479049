"""What programs that a test starts, and kills, write down about themselves."""

from __future__ import annotations

import json
import os
import time
from functools import cached_property
from pathlib import Path
from typing import Any


class Ledger:
    """A file that any number of processes write to: a line for each event, with one `write`, so that a kill -9 leaves
    whole lines only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[dict[str, Any]] = []
        self._read_to = 0
        path.touch()

    def write(self, event: str, **facts: Any) -> None:
        """Who wrote it, and when, stands behind the facts."""
        line = json.dumps({"event": event, **facts, "pid": os.getpid(), "at": facts.get("at", time.time())})
        os.write(self._file, f"{line}\n".encode())

    def read(self, event: str, **facts: Any) -> list[dict[str, Any]]:
        """All lines about this event that have these facts."""
        return [line for line in self._all() if line["event"] == event and facts.items() <= line.items()]

    def mentions(self, pid: int) -> bool:
        """Whether this process has written anything."""
        return any(line["pid"] == pid for line in self._all())

    def _all(self) -> list[dict[str, Any]]:
        # Only what is new is parsed: tests look again and again while others write thousands of lines.
        with self.path.open("rb") as file:
            file.seek(self._read_to)
            new, newline, _ = file.read().rpartition(b"\n")
        self._read_to += len(new) + len(newline)
        self._lines += map(json.loads, new.splitlines())
        return self._lines

    @cached_property
    def _file(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND)
