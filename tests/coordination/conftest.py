"""What many tests begin with; and processes that write down what they do, for tests that kill them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.coordination.queues import Queue
from kizuna.settings import Settings

PROGRAMS = Path(__file__).with_name("queue_programs.py")


@pytest.fixture
async def k(settings: Settings) -> AsyncIterator[Kizuna]:
    async with connect(settings) as k:
        yield k


@pytest.fixture
def queue(k: Kizuna) -> Queue:
    return k.queue("images")


class Ledger:
    """What the programs wrote down."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def read(self, event: str, **facts: Any) -> list[dict[str, Any]]:
        """All lines about this event that have these facts."""
        lines = map(json.loads, self.path.read_text().splitlines())
        return [line for line in lines if line["event"] == event and facts.items() <= line.items()]

    def mentions(self, pid: int) -> bool:
        """Whether this process has written anything."""
        return f'"pid": {pid},' in self.path.read_text()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


@pytest.fixture
def start(ledger: Ledger) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a program of queue_programs.py; none outlives the test."""
    with ExitStack() as cleanup:

        def start(program: str, settings: Settings, **arguments: Any) -> subprocess.Popen[bytes]:
            line = [program, overrides(settings), str(ledger.path), json.dumps(arguments)]
            process = subprocess.Popen([sys.executable, str(PROGRAMS), *line])
            cleanup.callback(process.wait)
            cleanup.callback(process.kill)
            return process

        yield start


def overrides(settings: Settings) -> str:
    sections = {name: msgspec.to_builtins(getattr(settings, name)) for name in ("roots", "processes", "queues")}
    return json.dumps({"store": {"url": settings.store.url}, **sections})
