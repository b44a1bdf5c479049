"""What tests of promises begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from tests.memory.exactness import assert_indexes_exact

from kizuna.app import connect
from kizuna.memory.memory import Memory
from kizuna.settings import Settings
from kizuna.testing import ServerProcess


@pytest.fixture
def exact(server: ServerProcess, root: str) -> Callable[[], bool]:
    """Whether the indexes are, for `eventually`."""
    return lambda: assert_indexes_exact(server, root)


@pytest.fixture
async def short(brief: Settings) -> AsyncIterator[Memory]:
    """Memory in which things may live briefly."""
    async with connect(brief) as k:
        yield k.memory
