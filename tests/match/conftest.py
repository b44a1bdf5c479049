from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from kizuna.app import Kizuna, connect
from kizuna.match.matchmaking import Matchmaking
from kizuna.settings import Settings
from kizuna.store.client import Store


@pytest_asyncio.fixture
async def k(store: Store, settings: Settings) -> AsyncIterator[Kizuna]:
    """Connected to the test's own keys; those that are left must end as declared."""
    async with connect(settings) as kizuna:
        yield kizuna


@pytest_asyncio.fixture
async def mm(k: Kizuna) -> Matchmaking:
    return k.match
