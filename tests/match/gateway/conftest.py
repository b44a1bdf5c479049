from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.match.gateway.scripted import Scripted, served

from kizuna.match.gateway import Gateway


@pytest.fixture
async def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
async def gateway(scripted: Scripted) -> AsyncIterator[Gateway]:
    async with served(scripted) as gateway:
        yield gateway
