"""The plain redis-py client that `k.redis()` gives: the same server, its own pool, and no write twice."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import trustme
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from kizuna.app import connect
from kizuna.errors import Unreachable
from kizuna.settings import Settings, StoreSettings
from kizuna.testing import ChaosProxy, ClusterSetup, SentinelSetup, ServerProcess, eventually

MakeProxy = Callable[..., Awaitable[ChaosProxy]]


def at(url: str, **options: Any) -> Settings:
    # A client of redis-py tries once; a machine may be busy.
    return Settings(store=StoreSettings(url=url, **{"connect_timeout_s": 20, **options}))


def clients(server: ServerProcess, name: str) -> int:
    return sum(f"name={name}-redis".encode() in line for line in server.call("CLIENT", "LIST").splitlines())


async def test_it_serves_keys_and_waits_where_the_store_does_not(server: ServerProcess, scratch: str) -> None:
    async with connect(at(server.url)) as k:
        client: Any = await k.redis()
        waiting = asyncio.create_task(client.blpop([f"{scratch}list"], timeout=5))
        await client.set(f"{scratch}k", "v")
        assert await k.store.get(f"{scratch}k") == b"v"
        await client.rpush(f"{scratch}list", "x")
        assert list(await waiting) == [f"{scratch}list".encode(), b"x"]


async def test_the_pool_is_open_at_once_and_bounded(server: ServerProcess, scratch: str) -> None:
    name = scratch.strip(":")
    async with connect(at(server.url, client_name=name, pool_min=3, pool_max=6)) as k:
        client: Any = await k.redis()
        assert clients(server, name) == 3

        waiting = [asyncio.create_task(client.blpop([f"{scratch}{number}"], timeout=0.5)) for number in range(12)]
        await eventually(lambda: clients(server, name) == 6)
        assert await asyncio.gather(*waiting) == [None] * 12
        assert clients(server, name) == 6
    await eventually(lambda: clients(server, name) == 0)


@pytest.mark.parametrize("then", ["cut", "silence"])
async def test_a_write_whose_reply_is_lost_is_not_repeated(
    proxy: MakeProxy, server: ServerProcess, scratch: str, then: Literal["cut", "silence"]
) -> None:
    through = await proxy()
    async with connect(at(through.url, timeout_s=2)) as k:
        client: Any = await k.redis()
        through.drop_replies(3, then=then)
        with pytest.raises(RedisError):
            await client.xadd(f"{scratch}stream", {"a": "b"})
        through.deliver_replies()

        assert server.call("XLEN", f"{scratch}stream") == 1


async def test_a_unix_socket_a_user_and_a_database() -> None:
    with ServerProcess(unix_socket=True, users={"app": "on >pw ~* &* +@all"}) as server:
        async with connect(at(f"unix://app:pw@{server.socket_path}?db=2")) as k:
            client: Any = await k.redis()
            await client.set("a", "b")
            assert await client.acl_whoami() in ("app", b"app")
            assert await k.store.get("a") == b"b"


async def test_tls_with_a_ca_of_ones_own(proxy: MakeProxy, tmp_path: Path) -> None:
    ca, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    ca.cert_pem.write_to_path(str(tmp_path / "ca"))
    through = await proxy(ssl_context=context)
    async with connect(at(through.url, tls_ca_file=str(tmp_path / "ca"))) as k:
        client: Any = await k.redis()
        assert await client.ping()


async def test_through_sentinel(sentinel: SentinelSetup) -> None:
    async with connect(at(sentinel.url, pool_min=2)) as k:
        client: Any = await k.redis()
        await client.set("pool-test", "v", px=5000)
        assert await k.store.get("pool-test") == b"v"
        assert clients(sentinel.primary, "kizuna") == 2


async def test_on_a_cluster(cluster: ClusterSetup) -> None:
    async with connect(at(cluster.url)) as k:
        client: Any = await k.redis()
        for number in range(20):
            await client.set(f"pool-test-{number}", number, px=5000)
            assert await k.store.get(f"pool-test-{number}") == str(number).encode()


async def test_on_a_cluster_a_write_whose_reply_is_lost_is_not_repeated() -> None:
    async with ChaosProxy("127.0.0.1", 0) as through:
        # A cluster of one, that calls itself by the address of the proxy.
        with ClusterSetup(primaries=1, config={"cluster-announce-port": through.port}) as setup:
            (server,) = setup.servers
            through.target = (server.host, server.port)
            async with connect(at(f"redis+cluster://{through.address}", timeout_s=2)) as k:
                client: Any = await k.redis()
                await client.set("a", "b")
                through.drop_replies(5, then="cut")
                with pytest.raises(RedisError):
                    await client.xadd("stream", {"a": "b"})
                through.deliver_replies()

                assert server.call("XLEN", "stream") == 1


async def test_no_connection_is_one_of_our_errors_and_leaves_nothing(proxy: MakeProxy) -> None:
    through = await proxy()
    async with connect(at(through.url, timeout_s=2)) as k:
        through.refuse()
        await through.cut()
        with pytest.raises(Unreachable) as unreachable:
            await k.redis()
        assert str(unreachable.value).startswith("redis-py has no connection (")
        assert through.address in str(unreachable.value)
        assert isinstance(unreachable.value.__cause__, RedisConnectionError)


async def test_closing_leaves_no_socket(server: ServerProcess) -> None:
    open_before = []
    for _ in range(3):
        async with connect(at(server.url)) as k:
            await k.redis()
            await k.redis()
        open_before.append(open_files())
    assert len(set(open_before)) == 1


def open_files() -> int:
    """How many this process has, where the system tells."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0
