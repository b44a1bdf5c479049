"""What many tests begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kizuna.app import Kizuna, connect
from kizuna.coordination.queues import Queue
from kizuna.settings import Settings


@pytest.fixture
async def k(settings: Settings) -> AsyncIterator[Kizuna]:
    async with connect(settings) as k:
        yield k


@pytest.fixture
def queue(k: Kizuna) -> Queue:
    return k.queue("images")


@pytest.fixture
def programs() -> Path:
    """For `start`."""
    return Path(__file__).with_name("queue_programs.py")
