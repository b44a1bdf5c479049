"""The calls that we answer, as data: gRPC and HTTP are served from the same list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message


@dataclass(frozen=True)
class Rpc:
    service: str
    """With its package: openmatch.FrontendService."""
    method: str
    request: type[Message]
    response: type[Message]
    call: Callable[[Any], Awaitable[Message]] | Callable[[Any], AsyncIterator[Message]]
    """Takes a request; returns a response to be awaited, or, if it streams, responses to be iterated over. Raises a
    KizunaError for what cannot be done."""
    streams: bool = False
    endless: bool = False
    """It streams until its caller leaves: a server that stops ends it, and does not wait for it."""
    http: tuple[str, str] | None = None
    """Method and path, as in ("GET", "/v1/frontendservice/tickets/{ticket_id}"); None: not served there. What is not in
    the path is in the body."""

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.method}"
