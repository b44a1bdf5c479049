"""The `kizuna` command as a process of its own, for tests of those that run until they are told to stop."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any


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
