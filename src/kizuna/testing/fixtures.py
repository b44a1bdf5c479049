"""Pytest fixtures on real servers. In conftest.py: `pytest_plugins = ["kizuna.testing.fixtures"]`.

Servers live as long as the session (one per xdist worker) and are shared by tests, which keep apart by their
`root`. The fixtures whose names begin with `fresh_` start one for a single test, which may break it.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kizuna.settings import RootsSettings, Settings, StoreSettings
from kizuna.testing.clusters import ClusterSetup
from kizuna.testing.leaks import BEHIND_MATCH, assert_keys_end_as_declared, scan
from kizuna.testing.proxy import ChaosProxy
from kizuna.testing.sentinels import SentinelSetup
from kizuna.testing.servers import ServerProcess

if TYPE_CHECKING:
    import ssl

    from kizuna.store.client import Store

MakeProxy = Callable[..., Awaitable[ChaosProxy]]

_NOTIFYING = {"notify-keyspace-events": "AKE"}


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """A server without persistence, with notifications on. Not to be stopped, paused or reconfigured."""
    with ServerProcess(config=_NOTIFYING) as server:
        yield server


@pytest.fixture
def fresh_server() -> Iterator[ServerProcess]:
    """A server of the test's own, which keeps its data over a restart."""
    with ServerProcess(persistent=True, config=_NOTIFYING) as server:
        yield server


@pytest.fixture(scope="session")
def sentinel() -> Iterator[SentinelSetup]:
    """A primary, its replica and three sentinels. Not to be broken."""
    with SentinelSetup() as setup:
        yield setup


@pytest.fixture
def fresh_sentinel() -> Iterator[SentinelSetup]:
    with SentinelSetup() as setup:
        yield setup


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterSetup]:
    """Three primaries. Slots may be moved, nodes may not be stopped."""
    with ClusterSetup() as setup:
        yield setup


@pytest.fixture
def fresh_cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup() as setup:
        yield setup


@pytest.fixture
def server_url(server: ServerProcess) -> str:
    return server.url


@pytest.fixture
def root() -> str:
    """The first part of every key of this test; no other test has it."""
    return f"t-{secrets.token_hex(4)}"


@pytest.fixture
def settings(server_url: str, root: str) -> Settings:
    """Settings that lead to `server` and `root`."""
    roots = RootsSettings(system=root, coordination=root, units=root, memory=root, match=f"{root}{BEHIND_MATCH}")
    return Settings(store=StoreSettings(url=server_url), roots=roots)


@pytest.fixture
def scratch(server: ServerProcess) -> Iterator[str]:
    """A beginning for keys on `server` that are the test's own and in no catalogue; removed after it."""
    prefix = f"scratch-{secrets.token_hex(4)}:"
    yield prefix
    with server.connect() as conversation:
        for key in list(scan(conversation, f"{prefix}*")):
            conversation.call("DEL", key)


@pytest_asyncio.fixture
async def store(settings: Settings, server: ServerProcess, root: str) -> AsyncIterator[Store]:
    """A store on `server`. The test fails if it leaves a key below `root` that is not declared, has another
    type than declared, or does not end as declared."""
    from kizuna.app import connect  # only tests that connect pay for loading it

    async with connect(settings) as kizuna:
        yield kizuna.store
    assert_keys_end_as_declared(server, root)


@pytest_asyncio.fixture
async def proxy(server: ServerProcess) -> AsyncIterator[MakeProxy]:
    """A function that starts a ChaosProxy, in front of `server` unless another one is named."""
    async with AsyncExitStack() as proxies:

        async def start(target: ServerProcess = server, *, ssl_context: ssl.SSLContext | None = None) -> ChaosProxy:
            return await proxies.enter_async_context(ChaosProxy(target.host, target.port, ssl_context=ssl_context))

        yield start
