"""What many tests of units begin with."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kizuna.app import Kizuna, connect
from kizuna.settings import Settings


@pytest.fixture
async def nothing_is_reported(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """The test fails if a loop has something to complain about: a task that was lost, an exception that nobody saw."""
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    yield
    gc.collect(1)
    await asyncio.sleep(0)
    assert reported == []
    # Loops in other threads have only the log.
    told = [record for record in caplog.get_records("call") if record.name == "asyncio"]
    assert [record.getMessage() for record in told if record.levelno >= logging.ERROR] == []


@pytest.fixture
async def k(settings: Settings, nothing_is_reported: None) -> AsyncIterator[Kizuna]:
    async with connect(settings) as k:
        yield k


@pytest.fixture
def programs() -> Path:
    """For `start`."""
    return Path(__file__).with_name("unit_programs.py")
