"""connect(): owns the store, hands out what stands on it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Self

from kizuna.settings import Settings, load_settings
from kizuna.store.client import Store
from kizuna.store.health.info import check_server

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster


class Kizuna:
    """A connected system. `store` carries every command; `redis()` is a plain client for keys of your own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings)
        self._clients: list[Redis | RedisCluster] = []

    async def redis(self) -> Redis | RedisCluster:
        """A redis-py client for the same server, with its own pool, and without redis-py's repeating of writes."""
        # redis-py takes a fifth of a second to import, and most never need it.
        from kizuna.store.pool import open_client

        client = await open_client(self.store)
        self._clients.append(client)
        return client

    async def aclose(self) -> None:
        """Close every connection; the embedded server stops with its last user. Harmless when repeated."""
        try:
            await self._close_clients()
        finally:
            await self.store.aclose()

    async def _close_clients(self) -> None:
        if self._clients:
            from kizuna.store.pool import close_client

            while self._clients:
                await close_client(self._clients.pop())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class connect:  # noqa: N801 - reads and is used like a function
    """Connect, either way: `k = await connect(…)` and later `await k.aclose()`, or `async with connect(…) as k:`.

    Takes a Settings, a URL, or nothing: then environment, kizuna.toml and defaults decide, and the default is
    the embedded server. Raises a KizunaError that says what is wrong, at which server, and what to do.
    """

    def __init__(self, target: Settings | str | None = None) -> None:
        self._target = target
        self._connected: Kizuna | None = None

    def __await__(self) -> Generator[Any, None, Kizuna]:
        return self._connect().__await__()

    async def __aenter__(self) -> Kizuna:
        self._connected = await self._connect()
        return self._connected

    async def __aexit__(self, *_: object) -> None:
        assert self._connected is not None  # noqa: S101 - entered before it is left
        await self._connected.aclose()

    async def _connect(self) -> Kizuna:
        k = Kizuna(_settings(self._target))
        await k.store.open()
        try:
            await check_server(k.store)
        except BaseException:
            await k.aclose()
            raise
        return k


def _settings(target: Settings | str | None) -> Settings:
    if isinstance(target, Settings):
        return target
    return load_settings({} if target is None else {"store": {"url": target}})
