"""Matchmaking, side by side with minimatch where Go can build it from its registry: the same game plays with both.

Each has a server of its own, without persistence; frontends, backends and the game share the machine with it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import match_creates, match_drains, match_waits
from benchmarks.loops import Loop
from benchmarks.match_peers.systems import Systems, systems
from benchmarks.reporting import Report


def measure(report: Report, loops: Sequence[Loop]) -> None:
    report.title("Match: tickets, assignments and backlogs of 1v1")
    with tempfile.TemporaryDirectory(prefix="kizuna-match-") as folder, systems(loops[-1], Path(folder)) as found:
        _tell_who_is_there(report, found)
        match_creates.measure(report, found, loops)
        match_waits.measure(report, found)
        match_drains.measure(report, found)


def _tell_who_is_there(report: Report, found: Systems) -> None:
    if found.minimatch is None:
        report.note(f"minimatch is not measured: {found.why_not}")
    if not found.is_game_of_go:
        report.note("no Go: the game is of Python, and part of what it measures is itself")
