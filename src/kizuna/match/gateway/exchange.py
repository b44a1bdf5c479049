"""One request over HTTP, and its answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpc import StatusCode

from kizuna.match.gateway.codes import refused
from kizuna.match.gateway.frames import decompressed, too_large

if TYPE_CHECKING:
    from kizuna.asgi import Receive, Scope, Send

# Of a body that comes in drops; what is a megabyte at most needs less on the worst of lines.
BODY_WITHIN_S = 30.0

_MS = re.compile(r"\d{1,10}")
_GRPC_TIMEOUT = re.compile(r"(\d{1,8})([HMSmun])")
_UNIT_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


@dataclass(frozen=True)
class Answer:
    status: int
    content_type: str
    body: bytes
    headers: Iterable[tuple[str, str]] = ()


class Gone(Exception):
    """The client left before its request was there as a whole. Never leaves the gateway."""


class Exchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        """By their names in lower case."""
        self.began = False
        """A status was sent: what goes wrong now can be told in the body only."""
        self._receive, self._send = receive, send

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def timeout_s(self) -> float | None:
        """How long the client waits, if it says so; Refused for what is no time."""
        if (ms := self.headers.get("connect-timeout-ms")) is not None:
            if not _MS.fullmatch(ms):
                raise refused(StatusCode.INVALID_ARGUMENT, "Connect-Timeout-Ms has to be at most ten digits")
            return int(ms) / 1000
        if (text := self.headers.get("grpc-timeout")) is None:
            return None
        found = _GRPC_TIMEOUT.fullmatch(text)
        if found is None:
            raise refused(StatusCode.INVALID_ARGUMENT, "Grpc-Timeout has to be a number with a unit, as in 100m or 5S")
        return int(found[1]) * _UNIT_S[found[2]]

    async def body(self, largest: int) -> bytes:
        """Refused for what is too large, before it is read whole, and for what does not come. Gone."""
        # A client that says how much it has need not send it.
        if int(self.headers.get("content-length", "0")) > largest:
            raise too_large(largest)
        try:
            async with asyncio.timeout(BODY_WITHIN_S):
                body = await self._read(largest)
        except TimeoutError:
            text = f"the body did not come within {BODY_WITHIN_S:g}s"
            raise refused(StatusCode.DEADLINE_EXCEEDED, text, 408, connection="close") from None
        return decompressed(body, self.encoding("content-encoding"), largest)

    def encoding(self, header: str) -> str:
        return self.headers.get(header, "").strip().lower()

    async def _read(self, largest: int) -> bytes:
        body, more = bytearray(), True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Gone
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > largest:
                raise too_large(largest)
        return bytes(body)

    async def left(self) -> None:
        """Returns when the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(self, answer: Answer) -> None:
        length = ("content-length", str(len(answer.body)))
        await self.begin(answer.status, answer.content_type, (length, *answer.headers))
        await self.write(answer.body, more=False)

    async def begin(self, status: int, content_type: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        # Tickets change; and what a page cannot read must not be guessed to be one.
        always = (("content-type", content_type), ("cache-control", "no-store"), ("x-content-type-options", "nosniff"))
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (*always, *headers)]
        # It waits for a slow reader before it writes, not after: cut off in that, nothing was sent.
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})
        self.began = True

    async def write(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
