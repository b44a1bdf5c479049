"""A plain redis-py client on the same server, for keys that are not ours and for commands that wait.

redis-py repeats a command up to ten times when the connection fails, writes included; here that is off, so that
its errors mean what ours mean: sent once, outcome unknown.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from kizuna.errors import Unreachable
from kizuna.store.dialing import Address, expanded

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from redis.asyncio import ConnectionPool

    from kizuna.settings import StoreSettings
    from kizuna.store.client import Store
    from kizuna.store.targets import Target

Client = TypeVar("Client", "Redis", "RedisCluster")


async def open_client(store: Store) -> Redis | RedisCluster:
    """A client whose pool holds pool_min connections already and never more than pool_max; on a cluster, it opens
    them as they are needed, and pool_max is that of each node. Raises Unreachable if there is no connection."""
    settings, target = store.settings.store, store.target
    options = _options(settings, target)
    if target.kind == "cluster":
        nodes = [ClusterNode(address.host, address.port) for address in target.addresses]
        tls = {**_tls_options(settings), "ssl": True} if target.tls else {}
        cluster = RedisCluster(startup_nodes=nodes, max_connections=settings.pool_max, **options, **tls)
        return await _ready(cluster, cluster.initialize(), target)
    if target.kind == "sentinel":
        client: Redis = _sentinel(settings, target).master_for(
            target.primary_name, max_connections=settings.pool_max, **options
        )
    else:
        client = Redis.from_pool(_pool(await _address(store), settings, target, options))
    return await _ready(client, _open_some(client.connection_pool, settings.pool_min), target)


async def close_client(client: Redis | RedisCluster) -> None:
    """Close it with all its connections. Harmless when repeated."""
    await client.aclose()
    if isinstance(client, RedisCluster):
        # After an error on a connection, redis-py takes a cluster client for closed already, and leaves the rest.
        await client.nodes_manager.aclose()
        await client.nodes_manager.aclose("startup_nodes")
    elif isinstance(client.connection_pool, SentinelConnectionPool):
        # And it never closes what it opened to ask the sentinels.
        for sentinel in client.connection_pool.sentinel_manager.sentinels:
            await sentinel.aclose()


async def _ready(client: Client, opening: Awaitable[object], target: Target) -> Client:
    try:
        await opening
    except (RedisError, OSError) as error:
        await close_client(client)
        where = ", ".join(map(str, target.addresses)) or "the embedded server"
        raise Unreachable(f"redis-py has no connection ({error})", where, "check store.url and the network") from error
    except BaseException:
        await close_client(client)
        raise
    return client


def _options(settings: StoreSettings, target: Target) -> dict[str, Any]:
    return {
        "username": target.username or None,
        "password": target.password or None,
        "client_name": f"{settings.client_name}-redis",
        "socket_timeout": settings.timeout_s,
        "socket_connect_timeout": settings.connect_timeout_s,
        "retry": Retry(NoBackoff(), 0),
    }


def _tls_options(settings: StoreSettings) -> dict[str, Any]:
    return {
        "ssl_ca_certs": expanded(settings.tls_ca_file),
        "ssl_certfile": expanded(settings.tls_cert_file),
        "ssl_keyfile": expanded(settings.tls_key_file),
    }


async def _address(store: Store) -> Address:
    (place,) = store.topology.places()
    return await place.locate()


def _pool(address: Address, settings: StoreSettings, target: Target, options: dict[str, Any]) -> BlockingConnectionPool:
    where: dict[str, Any] = {"host": address.host, "port": address.port}
    connection: type[Connection | UnixDomainSocketConnection] = Connection
    if not address.port:
        where, connection = {"path": address.host}, UnixDomainSocketConnection
    elif target.tls:
        where, connection = {**where, **_tls_options(settings)}, SSLConnection
    return BlockingConnectionPool(
        max_connections=settings.pool_max,
        timeout=settings.timeout_s,
        connection_class=connection,
        db=target.database,
        **where,
        **options,
    )


def _sentinel(settings: StoreSettings, target: Target) -> Sentinel:
    asking = {
        "username": settings.sentinel_username or None,
        "password": settings.sentinel_password or None,
        "socket_timeout": settings.connect_timeout_s,
    }
    tls = {**_tls_options(settings), "ssl": True} if target.tls else {}
    addresses = [(address.host, address.port) for address in target.addresses]
    return Sentinel(  # type: ignore[no-untyped-call]
        addresses, sentinel_kwargs={**asking, **tls}, db=target.database, **tls
    )


async def _open_some(pool: ConnectionPool, number: int) -> None:
    opening = (pool.get_connection() for _ in range(number))  # type: ignore[no-untyped-call]
    results = await asyncio.gather(*opening, return_exceptions=True)
    for result in results:
        if not isinstance(result, BaseException):
            await pool.release(result)
    for result in results:
        if isinstance(result, BaseException):
            raise result
