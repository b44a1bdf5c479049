"""The API of the memory on the server of the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.memory.rest.client import Client
from tests.memory.rest.serving import serving

from kizuna.settings import Settings


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Client]:
    async with serving(settings) as (_, client):
        yield client
