"""Commands that print what happens until they are told to stop, as processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kizuna.testing.commands import Runner


@contextmanager
def started(runner: Runner, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Entered when it watches."""
    line = [sys.executable, "-m", "kizuna", *runner.words, *arguments]
    with ExitStack() as cleanup:
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        cleanup.callback(process.communicate)
        cleanup.callback(process.kill)
        assert process.stderr is not None
        assert process.stderr.readline() == "Watching; Ctrl-C ends it.\n"
        yield process


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line, as JSON."""
    assert process.stdout is not None
    event: dict[str, Any] = json.loads(process.stdout.readline())
    return event
