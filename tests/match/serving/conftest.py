from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from tests.match.serving.channels import channel_to, frontend

from kizuna.app import Kizuna, connect
from kizuna.match.serving.frontend_calls import FrontendCalls
from kizuna.match.serving.grpc_server import GrpcServer
from kizuna.service import running
from kizuna.settings import Settings
from kizuna.store.client import Store
from kizuna.store.health.watch import ServerWatch


@pytest_asyncio.fixture
async def k(store: Store, settings: Settings) -> AsyncIterator[Kizuna]:
    """Connected to the test's own keys; those that are left must end as declared."""
    async with connect(settings) as kizuna:
        yield kizuna


@pytest_asyncio.fixture
async def stub(k: Kizuna) -> AsyncIterator[Any]:
    """The FrontendService of `k`, over a channel."""
    ready = ServerWatch(k.store).problems
    server = GrpcServer(FrontendCalls(k.match).rpcs(), k.settings.match, port=0, ready=ready)
    async with running(server), channel_to(server) as channel:
        yield frontend(channel)
