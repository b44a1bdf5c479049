"""Tables for people, figures for programs, and what was promised held against what was measured."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Cell = str | float
_TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Goal:
    what: str
    measured: float
    promised: float
    at_most: bool = False
    """Lower is better, as with seconds; else it is a ratio, and higher is better."""
    unit: str = "s"
    """Of what is to be low."""

    @property
    def met(self) -> bool:
        # As it is printed: 1.00 is not below 1.
        measured = round(self.measured, 3 if self.at_most else 2)
        return measured < self.promised if self.at_most else measured >= self.promised

    def text(self) -> str:
        if self.at_most:
            return f"{self.measured:.3f} {self.unit} (goal < {self.promised:g} {self.unit}){self._mark()}"
        return f"{shown_ratio(self.measured)} {self.what} (goal {self.promised:g}){self._mark()}"

    def _mark(self) -> str:
        return "" if self.met else "  << MISSED"


class Report:
    """Prints as it goes, and keeps everything for `--json`."""

    def __init__(self) -> None:
        self.missed: list[str] = []
        self._figures: list[dict[str, Any]] = []
        self._goals: list[dict[str, Any]] = []

    def title(self, text: str) -> None:
        print(f"\n{text}\n{'─' * len(text)}")

    def note(self, text: str) -> None:
        print(text, flush=True)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """The first column to the left, all others to the right."""
        lines = [list(headers), *([_shown(cell) for cell in row] for row in rows)]
        for line in lines:
            line += [""] * (len(headers) - len(line))
        widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
        for line in lines:
            first, *others = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            others = [cell.strip().rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            print("  ".join([first, *others]).rstrip())
        print(flush=True)

    def figure(self, suite: str, **facts: Any) -> None:
        self._figures.append({"suite": suite, **facts})

    def goals(self, subject: str, goals: Sequence[Goal]) -> None:
        """One line: what is measured, and what came of each goal for it."""
        print(f"{subject}: {', '.join(goal.text() for goal in goals)}", flush=True)
        for goal in goals:
            self._goals.append({"subject": subject, **asdict(goal), "met": goal.met})
            if not goal.met:
                self.missed.append(f"{subject}: {goal.text()}")

    def unmeasured(self, subject: str, why: str) -> None:
        """A goal of which nobody knows whether it is reached was not."""
        print(f"{subject}: not measured: {why}", flush=True)
        self._goals.append({"subject": subject, "why": why, "met": False})
        self.missed.append(f"{subject}: not measured")

    def verdict(self) -> None:
        self.title("Goals")
        total = len(self._goals)
        print(f"{total - len(self.missed)} of {total} met")
        for line in self.missed:
            print(f"  {line}")

    def save(self, path: Path, server: str) -> None:
        facts = {"python": platform.python_version(), "machine": platform.machine(), "server": server}
        path.write_text(json.dumps({**facts, "figures": self._figures, "goals": self._goals}, indent=1) + "\n")


def shown_ratio(ratio: float) -> str:
    return f"{ratio:.1f} {_TIMES}" if ratio >= 10 else f"{ratio:.2f} {_TIMES}"


def _shown(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell:,.0f}" if cell >= 100 else f"{cell:.1f}" if cell >= 10 else f"{cell:.2f}"
