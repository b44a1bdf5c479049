"""What is the most that Python gets out of the paths of units: one socket, hiredis, and nothing besides.

Requests and replies are keys, as ours are, and heard of by notifications. But nobody claims a request, looks again,
reconnects, counts, watches a deadline or runs a handler: the replies are written as the requests are read.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import hiredis

from benchmarks.peer_roles import URL
from benchmarks.unit_peers.roles import NAME, Call

SERVER = urlsplit(URL)
DATABASE = int(SERVER.path.strip("/") or 0)
ANNOUNCED = b"__keyspace@%d__:" % DATABASE
REQUEST, REPLY = b"muf/caller/req/", b"muf/caller/res/"
REQUEST_MS, REPLY_MS = 10_000, 60_000

Reply = asyncio.Future[Any]


class Connection(asyncio.Protocol):
    """Replies go to those who wait, in order; keys that were set go to `hear`. One turn of the loop is one write."""

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        self._hear = hear
        self._reader = hiredis.Reader(notEnoughData=Ellipsis)
        self._waiting: deque[Reply] = deque()
        self._unsent: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()

    def send(self, *command: Any) -> Reply:
        self.tell(*command)
        reply: Reply = self._loop.create_future()
        self._waiting.append(reply)
        return reply

    def tell(self, *command: Any) -> None:
        """One that is not answered, as subscribing is not."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(hiredis.pack_command(command))

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not Ellipsis:
            if not isinstance(reply, hiredis.PushNotification):
                self._waiting.popleft().set_result(reply)
            elif reply[0] == b"pmessage" and reply[3] == b"set":
                self._hear(reply[2].removeprefix(ANNOUNCED))

    def _flush(self) -> None:
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()


class Reading:
    """Reads the keys that were announced in one turn of the loop with one MGET."""

    def __init__(self, take: Callable[[bytes, bytes], None]) -> None:
        self.connection: Connection
        self._take = take
        self._keys: list[bytes] = []

    def add(self, key: bytes) -> None:
        if not self._keys:
            asyncio.get_running_loop().call_soon(self._read)
        self._keys.append(key)

    def _read(self) -> None:
        keys, self._keys = self._keys, []
        self.connection.send("MGET", *keys).add_done_callback(lambda values: self._hand_out(keys, values))

    def _hand_out(self, keys: list[bytes], values: Reply) -> None:
        for key, value in zip(keys, values.result(), strict=True):
            self._take(key, value)


@asynccontextmanager
async def responding() -> AsyncIterator[None]:
    def answer(key: bytes, data: bytes) -> None:
        reading.connection.send("SET", key.replace(b"/req/", b"/res/"), data, "PX", REPLY_MS)

    reading = Reading(answer)
    async with _hearing(reading, b"muf/*/req/%b.*" % NAME.encode()):
        yield


@asynccontextmanager
async def calling() -> AsyncIterator[Call]:
    waiting: dict[bytes, asyncio.Future[bytes]] = {}
    numbers = itertools.count()
    reading = Reading(lambda key, data: waiting.pop(key).set_result(data))

    async def call(data: bytes) -> bytes:
        name = b"%b.%d" % (NAME.encode(), next(numbers))
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting[REPLY + name] = reply
        reading.connection.send("SET", REQUEST + name, data, "PX", REQUEST_MS)
        return await reply

    async with _hearing(reading, REPLY + b"*"):
        yield call


@asynccontextmanager
async def _hearing(reading: Reading, pattern: bytes) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    address = SERVER.hostname or "127.0.0.1", SERVER.port or 6379
    transport, connection = await loop.create_connection(lambda: Connection(reading.add), *address)
    reading.connection = connection
    await connection.send("HELLO", 3)
    await connection.send("SELECT", DATABASE)
    connection.tell("PSUBSCRIBE", ANNOUNCED + pattern)
    # Answered when the subscription stands.
    await connection.send("PING")
    yield
    transport.close()
