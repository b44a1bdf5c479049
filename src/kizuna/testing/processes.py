"""Which processes are there: for tests that must leave none behind. Linux only."""

from __future__ import annotations

from pathlib import Path


def processes_on(folder: Path) -> dict[int, list[str]]:
    """The living processes that work in this folder or name it in their command line, with that command line."""
    found = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and str(folder) in _traces(process):
            found[int(process.name)] = _command_line(process)
    return found


def _traces(process: Path) -> str:
    try:
        # A process that has ended, and of which nobody has taken note yet, has neither.
        return f"{(process / 'cwd').readlink()} {_command_line(process)}"
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def _command_line(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []
