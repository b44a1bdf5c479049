"""Which processes are there: for tests that must leave none behind. Linux only."""

from __future__ import annotations

from pathlib import Path


def processes_on(path: Path) -> dict[int, list[str]]:
    """The processes that live and name this path in their command line, with that command line."""
    lines = {int(entry.name): _command_line(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    return {pid: line for pid, line in lines.items() if any(str(path) in word for word in line)}


def _command_line(process: Path) -> list[str]:
    """Empty for one that has ended, also if nobody has taken note of that yet."""
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []
