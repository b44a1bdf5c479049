"""Connections to what others serve: kept, and shared by all who call the same address."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc.aio

if TYPE_CHECKING:
    from kizuna.match.director.function_tls import FunctionTls

LARGEST_BYTES = 64 * 1024 * 1024
"""No single answer may be larger."""

# Directors name few functions; but where those move from address to address, what is left of the old ones goes.
_KEPT_AT_MOST = 64
_OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_BYTES),
    ("grpc.max_send_message_length", LARGEST_BYTES),
    # A function that was started again is found within a second, and not after two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Else a channel shares the failures of others to the same address, also of those that were closed.
    ("grpc.use_local_subchannel_pool", 1),
]


class Channels:
    """`tls` says whether they are by TLS."""

    def __init__(self, tls: FunctionTls) -> None:
        self.tls = tls
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._users: dict[str, int] = {}
        self._closing: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._channels)

    @contextmanager
    def to(self, address: str) -> Iterator[grpc.aio.Channel]:
        """The channel to this address, for the length of the block."""
        channel = self._take(address)
        try:
            yield channel
        finally:
            if self._channels.get(address) is channel:
                self._users[address] -= 1

    def _take(self, address: str) -> grpc.aio.Channel:
        self._drop_unused()
        # Whoever was used last stands last.
        channel = self._channels.pop(address, None) or self._open(address)
        self._channels[address] = channel
        self._users[address] = self._users.get(address, 0) + 1
        return channel

    def _open(self, address: str) -> grpc.aio.Channel:
        target, credentials = f"dns:///{address}", self.tls.credentials
        if credentials is None:
            return grpc.aio.insecure_channel(target, _OPTIONS)
        return grpc.aio.secure_channel(target, credentials, _OPTIONS)

    def _drop_unused(self) -> None:
        unused = [address for address in self._channels if not self._users[address]]
        for address in unused[: max(len(self._channels) - _KEPT_AT_MOST, 0)]:
            del self._users[address]
            task = asyncio.ensure_future(self._channels.pop(address).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Calls that are under way fail."""
        channels, self._channels, self._users = list(self._channels.values()), {}, {}
        for channel in channels:
            await channel.close()
        await asyncio.gather(*self._closing)
