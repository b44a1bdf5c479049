"""The program in JavaScript, and memory beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.memory.driven import Driven, javascript

from kizuna.app import Kizuna
from kizuna.memory.memory import Memory
from kizuna.settings import Settings


@pytest.fixture
async def js(settings: Settings) -> AsyncIterator[Driven]:
    async with javascript(settings) as js:
        yield js


@pytest.fixture
async def m(k: Kizuna) -> Memory:
    """Memory that sweeps, before anything of ours is written."""
    await k.memory.begin()
    return k.memory
