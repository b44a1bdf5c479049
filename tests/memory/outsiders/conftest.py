"""A server that outsiders may do with what they like, memory on it, and one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from tests.memory.exactness import assert_indexes_exact
from tests.memory.outsiders.outsider import Outsider

from kizuna.app import connect
from kizuna.memory.memory import Memory
from kizuna.settings import MemorySettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import ServerProcess


@pytest.fixture(scope="module")
def wild() -> Iterator[ServerProcess]:
    """A server of these tests' own: outsiders may leave there what they like."""
    with ServerProcess(config={"notify-keyspace-events": "AKE"}) as server:
        yield server


@pytest.fixture
def settings(wild: ServerProcess, root: str) -> Settings:
    roots = RootsSettings(system=root, coordination=root, units=root, memory=root)
    brief = MemorySettings(item_least_s=0.05, context_least_s=0.05)
    return Settings(store=StoreSettings(url=wild.url), roots=roots, memory=brief)


@pytest.fixture
async def m(settings: Settings) -> AsyncIterator[Memory]:
    """Memory that sweeps, before anything of ours is written."""
    async with connect(settings) as k:
        await k.memory.begin()
        yield k.memory


@pytest.fixture
def outsider(wild: ServerProcess, root: str) -> Iterator[Outsider]:
    with wild.connect() as conversation:
        yield Outsider(conversation, root)


@pytest.fixture
def exact(wild: ServerProcess, root: str) -> Callable[[], bool]:
    """Whether the indexes are, for `eventually`."""
    return lambda: assert_indexes_exact(wild, root)
