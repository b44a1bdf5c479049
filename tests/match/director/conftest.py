from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.match.director.directing import OpenMatch, open_match

from kizuna.settings import Settings


@pytest.fixture
async def om(settings: Settings) -> AsyncIterator[OpenMatch]:
    """With the evaluator that there is unless another one is set."""
    async with open_match(settings) as om:
        yield om
