"""connect(): owns the store, hands out what stands on it."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
from collections.abc import Generator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from kizuna.codecs import JSON, RAW, Codec
from kizuna.coordination.background import Background
from kizuna.coordination.queue_names import DEFAULT_GROUP
from kizuna.coordination.roots import roots_of
from kizuna.errors import NotInstalled
from kizuna.settings import Settings, load_settings
from kizuna.store.client import Store
from kizuna.store.health.info import check_server

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

    from kizuna.coordination.channels import Channels
    from kizuna.coordination.config import Config
    from kizuna.coordination.flags import Flags
    from kizuna.coordination.issues import Issues
    from kizuna.coordination.kept import Kept
    from kizuna.coordination.locks import Locks
    from kizuna.coordination.metrics.history import MetricHistory
    from kizuna.coordination.namespace import Namespace
    from kizuna.coordination.processes import Processes
    from kizuna.coordination.queues import Queue, Queues
    from kizuna.coordination.stats import Stats
    from kizuna.match.matchmaking import Matchmaking
    from kizuna.memory.memory import Memory
    from kizuna.units.unit import Unit
    from kizuna.units.units import Units


# What closing connections may take, if nothing else is to be waited for.
_AT_ONCE_S = 0.5


class Kizuna:
    """A connected system. `store` carries every command; `redis()` is a plain client for keys of your own; all else
    is what a fleet works together with, each loaded when it is first used."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings)
        self.process = settings.processes.id or unique_process_id()
        """The name of this process in the fleet: what it holds, it holds by that name."""
        self.background = Background(settings)
        self._clients: list[Redis | RedisCluster] = []

    @cached_property
    def keys(self) -> Namespace:
        """The names of all keys, as in `k.keys.issue(123).status`."""
        from kizuna.coordination.namespace import Namespace

        return Namespace(roots_of(self.store))

    @cached_property
    def locks(self) -> Locks:
        from kizuna.coordination.locks import Locks

        return Locks(self.store, self.background, self.process)

    @cached_property
    def processes(self) -> Processes:
        """Who is there. When one of them dies, what it held goes back to the others."""
        from kizuna.coordination.processes import Processes

        processes = Processes(self.store, self.background, self.process)
        for part in (self.locks, self.issues, self.queues):
            processes.on_death(part.give_back)
        processes.on_death(self._give_back_tickets)
        return processes

    async def _give_back_tickets(self, process: str) -> None:
        from kizuna.match.giving_back import give_back

        await give_back(self.store, process)

    @cached_property
    def issues(self) -> Issues:
        from kizuna.coordination.issues import Issues

        return Issues(self.store, self.process)

    @cached_property
    def queues(self) -> Queues:
        from kizuna.coordination.queues import Queues

        return Queues(self.store, self.background, self.process, lambda: self.processes.join(kind="consumer"))

    def queue(self, group: str = DEFAULT_GROUP, *, codec: Codec = JSON) -> Queue:
        """The queue of a group; payloads and results are JSON unless another codec is given."""
        return self.queues.group(group, codec=codec)

    @cached_property
    def config(self) -> Config:
        from kizuna.coordination.config import Config

        return Config(self.store, self.process)

    @cached_property
    def flags(self) -> Flags:
        from kizuna.coordination.flags import Flags

        return Flags(self.store, self.process)

    @cached_property
    def stats(self) -> Stats:
        from kizuna.coordination.stats import Stats

        return Stats(self.store)

    @cached_property
    def metrics(self) -> MetricHistory:
        from kizuna.coordination.metrics.history import MetricHistory

        return MetricHistory(self.store)

    @cached_property
    def channels(self) -> Channels:
        from kizuna.coordination.channels import Channels

        return Channels(self.store)

    @cached_property
    def temp(self) -> Kept:
        """Values for an hour."""
        from kizuna.coordination.kept import temporary

        return temporary(self.store)

    @cached_property
    def sessions(self) -> Kept:
        """Values for a month."""
        from kizuna.coordination.kept import sessions

        return sessions(self.store)

    @cached_property
    def units(self) -> Units:
        """What the units of this process have in common."""
        from kizuna.units.units import Units

        return Units(self.store, self.background, self.process)

    def unit(
        self,
        name: str,
        *,
        codec: Codec = RAW,
        request_s: float | None = None,
        response_s: float | None = None,
        error_s: float | None = None,
        keep_s: float | None = None,
    ) -> Unit:
        """A unit, that others know by this name; does nothing until it is used. Values are bytes unless another codec
        is given, and live as long as the settings say unless they are to live for other times."""
        from kizuna.units.unit import Unit

        units = self.units
        return Unit(units, name, codec, request_s=request_s, response_s=response_s, error_s=error_s, keep_s=keep_s)

    @cached_property
    def memory(self) -> Memory:
        """What programs remember for a while, and share."""
        from kizuna.memory.memory import Memory

        return Memory(self.store, self.background)

    @cached_property
    def match(self) -> Matchmaking:
        """Tickets of players, and who makes matches of them. NotInstalled without the extra `match`."""
        try:
            from kizuna.match.matchmaking import Matchmaking
        except ModuleNotFoundError as error:
            raise NotInstalled("google.protobuf", "match") from error

        return Matchmaking(self.store, self.process, lambda: self.processes.join(kind="matchmaker"))

    async def redis(self) -> Redis | RedisCluster:
        """A redis-py client for the same server, with its own pool, and without redis-py's repeating of writes."""
        # redis-py takes a fifth of a second to import, and most never need it.
        from kizuna.store.pool import open_client

        client = await open_client(self.store)
        self._clients.append(client)
        return client

    async def aclose(self) -> None:
        """Close every connection; the embedded server stops with its last user. Harmless when repeated.

        Cancelled, it does not wait for the server to stop.
        """
        wait_s = None
        try:
            if "units" in vars(self):
                await self.units.aclose()
            if "memory" in vars(self):
                await self.memory.aclose()
            if "match" in vars(self):
                await self.match.aclose()
            if "queues" in vars(self):
                await self.queues.aclose()
            await self.background.aclose()
            await self._close_clients()
        except asyncio.CancelledError:
            wait_s = _AT_ONCE_S
            raise
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
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


def unique_process_id() -> str:
    """Something that people recognise, and that no other process has, on any machine, at any time."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:40]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def _settings(target: Settings | str | None) -> Settings:
    if isinstance(target, Settings):
        return target
    return load_settings({} if target is None else {"store": {"url": target}})
