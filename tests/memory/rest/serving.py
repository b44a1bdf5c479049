"""The API, served on a port of its own, and what is often sent to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from tests.memory.rest.client import Client

from kizuna.app import Kizuna, connect
from kizuna.memory.rest import RestApi
from kizuna.service import running
from kizuna.settings import Settings

NOTE = {"type": "note", "content": {"text": "hello"}}


def on_a_free_port(settings: Settings, **others: Any) -> Settings:
    memory = msgspec.structs.replace(settings.memory, rest_port=0, **others)
    return msgspec.structs.replace(settings, memory=memory)


@asynccontextmanager
async def serving(settings: Settings, **others: Any) -> AsyncIterator[tuple[Kizuna, Client]]:
    token = others.get("rest_token", "")
    async with connect(on_a_free_port(settings, **others)) as k:
        api = RestApi(k)
        async with running(api):
            yield k, Client(api.url, token)
