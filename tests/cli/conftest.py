"""Commands that run until they are told to stop."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kizuna.testing.commands import Command


@pytest.fixture
def start_command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Start `kizuna` with these arguments, in the folder of the test; none outlives it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KIZUNA_")}
    with ExitStack() as cleanup:

        def start(*arguments: str) -> Command:
            line = [sys.executable, "-m", "kizuna", *arguments]
            pipe = subprocess.PIPE
            process = subprocess.Popen(line, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, env=environment)
            cleanup.callback(process.communicate)
            cleanup.callback(process.kill)
            return Command(process)

        yield start
