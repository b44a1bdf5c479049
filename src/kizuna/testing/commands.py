"""The `kizuna` command: within the test, and as a process of its own for those that run until they are told to stop."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click
    from click.testing import Result


class Command:
    """Made when it has started: `facts` is what it told then, as JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"it ended: {process.communicate()[1]}"
        self.facts: dict[str, Any] = json.loads(line)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Its exit code, and what it said."""
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said


class Runner:
    """Runs it within the test, with these words before the arguments."""

    def __init__(self, command: click.Command, *words: str) -> None:
        self.command, self.words = command, words

    def __call__(self, *arguments: str, given: bytes | str | None = None) -> Result:
        """`given` is its standard input."""
        from click.testing import CliRunner

        return CliRunner().invoke(self.command, [*self.words, *arguments], input=given)

    def done(self, *arguments: str, given: bytes | str | None = None) -> Result:
        """The same for one that has to succeed."""
        ended = self(*arguments, given=given)
        assert ended.exit_code == 0, ended.output
        return ended

    def rows(self, *arguments: str, given: bytes | str | None = None) -> list[dict[str, Any]]:
        """What it prints with --json."""
        return [json.loads(line) for line in self.done(*arguments, "--json", given=given).stdout.splitlines()]

    def row(self, *arguments: str, given: bytes | str | None = None) -> dict[str, Any]:
        [row] = self.rows(*arguments, given=given)
        return row
