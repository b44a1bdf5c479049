"""connect(): what it takes, what it gives, and what it refuses."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import kizuna
from kizuna.app import Kizuna, connect
from kizuna.errors import KizunaError, SettingsError, UnsafeServer
from kizuna.settings import EmbeddedSettings, Settings, StoreSettings
from kizuna.testing import ChaosProxy, ServerProcess, eventually


def test_connect_is_public() -> None:
    assert kizuna.connect is connect


async def test_a_url_is_enough(server: ServerProcess) -> None:
    async with connect(server.url) as k:
        assert isinstance(k, Kizuna)
        assert await k.store.call("PING") == b"PONG"
        assert k.settings.store.url == server.url


async def test_settings_are_taken_as_they_are(server: ServerProcess) -> None:
    settings = Settings(store=StoreSettings(url=server.url, client_name="somebody"))
    async with connect(settings) as k:
        assert k.settings is settings
        assert b"name=somebody:" in await k.store.call("CLIENT", "INFO")


async def test_without_an_argument_the_environment_decides(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KIZUNA_STORE__URL", server.url)
    async with connect() as k:
        assert k.settings.store.url == server.url


async def test_with_nothing_said_the_embedded_server_is_used(server_folder: Path) -> None:
    settings = Settings(embedded=EmbeddedSettings(folder=str(server_folder), port=0))
    async with connect(settings) as k:
        assert k.store.target.kind == "embedded"
        await k.store.call("SET", "a", "b")
    async with connect(settings) as k:
        assert await k.store.get("a") == b"b"


async def test_it_can_be_awaited_and_closed_by_hand(server: ServerProcess) -> None:
    k = await connect(server.url)
    try:
        assert await k.store.call("PING") == b"PONG"
    finally:
        await k.aclose()
        await k.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_wrong_url_is_refused_before_anything_happens() -> None:
    with pytest.raises(SettingsError, match="is none of embedded://, redis://"):
        await connect("http://somewhere")


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster"])
async def test_whoever_gives_up_connecting_leaves_nothing(server: ServerProcess, scheme: str) -> None:
    async with ChaosProxy(server.host, server.port) as through:
        through.stall()
        connecting = asyncio.ensure_future(_connected(f"{scheme}://{through.address}"))
        await eventually(lambda: through.connections == 1)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

        assert _only_the_proxy_is_left()


async def _connected(url: str) -> Kizuna:
    return await connect(url)


def _only_the_proxy_is_left() -> bool:
    return not [task for task in asyncio.all_tasks() if task.get_name().startswith("kizuna")]


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu"])
async def test_a_server_that_would_throw_our_keys_away_is_refused_and_left(policy: str) -> None:
    with ServerProcess(config={"maxmemory-policy": policy}) as server:
        with pytest.raises(UnsafeServer) as refused:
            await connect(server.url)

        assert isinstance(refused.value, KizunaError)
        assert "run there: CONFIG SET maxmemory-policy noeviction" in str(refused.value)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await eventually(lambda: server.call("CLIENT", "LIST").count(b"name=kizuna") == 0)


async def test_redis_py_is_not_loaded_until_somebody_wants_it() -> None:
    code = (
        "import sys, kizuna.app; "
        "print(sorted(name for name in sys.modules if name.split('.')[0] in {'redis', 'prometheus_client'}))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()

    assert printed.strip() == b"[]"
