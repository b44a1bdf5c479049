"""A memory that keeps a copy, and a network between it and its server that can be cut."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from kizuna.app import connect
from kizuna.errors import Unreachable
from kizuna.memory.backup.backup import Backup
from kizuna.memory.backup.fallback import FallbackKeeper
from kizuna.memory.memory import Memory
from kizuna.settings import MemorySettings, Settings, StoreSettings
from kizuna.testing import ChaosProxy, eventually
from kizuna.testing.fixtures import MakeProxy

Remember = Callable[..., Awaitable[Memory]]

WITHIN_S = 20.0


@pytest.fixture
async def network(proxy: MakeProxy) -> ChaosProxy:
    return await proxy()


@pytest.fixture
def copied(settings: Settings, network: ChaosProxy, tmp_path: Path) -> Settings:
    """Through the network, with a copy that soon answers, and lives as brief as they are told to be."""
    memory = MemorySettings(
        backup_folder=str(tmp_path / "copy"),
        fallback_after_s=3.0,
        item_least_s=0.05,
        context_least_s=0.05,
        sweep_every_s=0.05,
    )
    store = StoreSettings(url=network.url, timeout_s=2.0, reconnect_longest_s=0.1)
    return msgspec.structs.replace(settings, store=store, memory=memory)


@pytest.fixture
async def remember(copied: Settings) -> AsyncIterator[Remember]:
    """Starts a memory with these settings, or those of `copied`, which has copied all there is."""
    async with AsyncExitStack() as stack:

        async def start(settings: Settings = copied) -> Memory:
            m = (await stack.enter_async_context(connect(settings))).memory
            await m.get("anything")
            return m

        yield start


@pytest.fixture
async def m(remember: Remember) -> Memory:
    m = await remember()
    await until_complete(m)
    return m


@pytest.fixture
async def other(settings: Settings) -> AsyncIterator[Memory]:
    """Somebody else, who always reaches the server."""
    async with connect(settings) as k:
        yield k.memory


def fallback_of(m: Memory) -> FallbackKeeper:
    assert m.fallback is not None
    return m.fallback


def backup_of(m: Memory) -> Backup:
    return fallback_of(m).backup


async def until_complete(m: Memory) -> None:
    async def is_complete() -> bool:
        return (await backup_of(m).contents()).is_complete

    await eventually(is_complete, within_s=WITHIN_S)


async def until_copied(m: Memory, id_: str, version: int = 1) -> None:
    """Until the copy has it: by a write of its own it has it at once, by those of others a moment later."""

    async def is_copied() -> bool:
        (item,) = await backup_of(m).keeper.read([id_])
        return item is not None and item.version >= version

    await eventually(is_copied, within_s=WITHIN_S)


async def lose(network: ChaosProxy, m: Memory) -> None:
    """The server goes away, and the memory has noticed it."""
    network.refuse()
    await network.cut()
    # How long it would take to notice is the subject of other tests.
    fallback_of(m)._presence.go_away(Unreachable("the cable was pulled", network.address, "wait"))
    await m.get("anything")
    assert fallback_of(m).is_away


async def find(network: ChaosProxy, *memories: Memory) -> None:
    """The server is back, and all that was journalled has happened there."""
    await network.accept()
    await eventually(lambda: not any(fallback_of(m).is_away for m in memories), within_s=WITHIN_S)
