from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kizuna.testing.processes import processes_on
from kizuna.testing.waiting import blocking_until

pytest_plugins = ["kizuna.testing.fixtures"]


@pytest.fixture
def server_folder(tmp_path: Path) -> Iterator[Path]:
    """For an embedded server; when the test has ended, every process on it must end by itself."""
    folder = tmp_path / "server"
    yield folder
    try:
        blocking_until(lambda: not processes_on(folder))
    finally:
        for pid in processes_on(folder):
            os.kill(pid, signal.SIGKILL)
