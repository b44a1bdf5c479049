"""HTTP, plainly: whole answers by the library, and streams and bad manners byte by byte."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

WITHIN_S = 30.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes

    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


async def ask(
    url: str, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
) -> Answer:
    """A body that is not bytes is sent as JSON."""
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    return await asyncio.to_thread(_ask, url, method, path, raw, headers or {})


def _ask(url: str, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=WITHIN_S)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


class Conversation:
    """One connection: what is sent is sent as it is, what comes is read as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.headers: dict[str, str] = {}

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        """Headers by their names with _ for -."""
        named = {"host": "localhost", "content-length": str(len(body)), **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in named.items())]
        await self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def status(self) -> int:
        """Of the next answer, whose headers can be looked at then."""
        first, *lines = (await self._until(b"\r\n\r\n")).decode().removesuffix("\r\n\r\n").split("\r\n")
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return int(first.split(" ")[1])

    async def whole_body(self) -> bytes:
        if "content-length" in self.headers:
            return await asyncio.wait_for(self._reader.readexactly(int(self.headers["content-length"])), WITHIN_S)
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunk(self) -> bytes:
        """The next one of a body in chunks; empty at its end."""
        length = int(await self._until(b"\r\n"), 16)
        data = await asyncio.wait_for(self._reader.readexactly(length + 2), WITHIN_S)
        return data.removesuffix(b"\r\n")

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self.chunk():
            yield chunk

    async def is_over(self) -> bool:
        """The other side has closed it, and nothing is left to read."""
        return await asyncio.wait_for(self._reader.read(), WITHIN_S) == b""

    def leave(self) -> None:
        self._writer.transport.abort()

    async def _until(self, end: bytes) -> bytes:
        return await asyncio.wait_for(self._reader.readuntil(end), WITHIN_S)


@asynccontextmanager
async def conversation(url: str) -> AsyncIterator[Conversation]:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield Conversation(reader, writer)
    finally:
        writer.close()
