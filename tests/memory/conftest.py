"""What many tests of memory begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.memory.memory import Memory
from kizuna.settings import MemorySettings, Settings


@pytest.fixture
async def k(settings: Settings) -> AsyncIterator[Kizuna]:
    async with connect(settings) as k:
        yield k


@pytest.fixture
def m(k: Kizuna) -> Memory:
    return k.memory


@pytest.fixture
async def unswept(settings: Settings) -> AsyncIterator[Memory]:
    """Memory in a process that looks after nothing by itself for as long as a test lasts."""
    rarely = MemorySettings(sweep_every_s=600.0, pressure_every_s=600.0)
    async with connect(msgspec.structs.replace(settings, memory=rarely)) as k:
        yield k.memory


@pytest.fixture
def brief(settings: Settings) -> Settings:
    """The same, where things may live as briefly as they are told to."""
    return msgspec.structs.replace(
        settings,
        memory=MemorySettings(item_least_s=0.05, context_least_s=0.05, result_least_s=0.05, state_least_s=0.05),
    )


@pytest.fixture
def programs() -> Path:
    """For `start`."""
    return Path(__file__).with_name("memory_programs.py")
