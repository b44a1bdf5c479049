"""The processes of one peer: each in a session of its own, given orders, and ended by its id, however it goes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.loops import Loop

ROOT = Path(__file__).parents[1]
ANSWER_WITHIN_S = 60.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class PeerFailed(Exception):
    """What went wrong, in a line."""


class PeerProcess:
    """`python -m <module> <peer> <role>`, or another `command`. As a context: nothing of it is left afterwards.

    It runs with what is installed in the folder of `packages`, by default that of its name; what it is told besides
    is in `peer_roles.py`.
    """

    def __init__(
        self,
        module: str,
        peer: str,
        role: str,
        *,
        url: str,
        folder: Path,
        loop: Loop = "asyncio",
        packages: str = "",
        command: Sequence[str | Path] = (),
    ) -> None:
        self._role = role
        with tempfile.NamedTemporaryFile(prefix=f"{peer}-{role}-", suffix=".log", dir=folder, delete=False) as log:
            self._log = Path(log.name)
            self._process = subprocess.Popen(
                command or [sys.executable, "-m", module, peer, role],
                cwd=ROOT,
                # Before the packages of this environment, which fill in what a peer can do without.
                env={
                    **os.environ,
                    "PYTHONPATH": str(packages_of(packages or peer)),
                    "PEER_URL": url,
                    "PEER_LOOP": loop,
                    "PEER_FOLDER": str(folder),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Kill it with all that it started. Can be repeated."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()

    def order(self, order: str, **facts: Any) -> dict[str, Any]:
        """Have it do something, and return its figures; `PeerFailed` if it does not answer."""
        self.ask(order, **facts)
        return self.answer()

    def ask(self, order: str, **facts: Any) -> None:
        """The first half of `order`, for having several do something at the same time."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"order": order, **facts}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerFailed(self._last_words()) from None

    def answer(self) -> dict[str, Any]:
        """The other half."""
        assert self._process.stdout is not None
        if not _readable(self._process.stdout.fileno(), ANSWER_WITHIN_S):
            raise PeerFailed(f"no answer of the {self._role} within {ANSWER_WITHIN_S:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise PeerFailed(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def cpu_s(self) -> float:
        """CPU seconds of it and of the processes that it started and that still run."""
        return sum(_cpu_s(process) for process in _session(self._process.pid))

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), f"the {self._role} ended")


def packages_of(peer: str) -> Path:
    """The folder of what was installed for this peer alone; see `bench` in the Makefile."""
    return Path(sys.prefix, "peers", peer)


def is_installed(peer: str) -> bool:
    return packages_of(peer).is_dir()


def cpu_s_of(pid: int) -> float:
    return _cpu_s(_stat(pid))


def _readable(fd: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


def _session(leader: int) -> list[list[str]]:
    stats = (_stat(int(folder.name)) for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return [stat for stat in stats if stat and stat[3] == str(leader)]


def _stat(pid: int) -> list[str]:
    """What /proc says after the name of the program, which may hold blanks: state, parent, group, session, …"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _cpu_s(stat: list[str]) -> float:
    return (int(stat[11]) + int(stat[12])) / _TICKS_A_SECOND if stat else 0.0
