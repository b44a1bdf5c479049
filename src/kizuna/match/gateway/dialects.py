"""What a way of writing requests and answers has to do. Each is a file: rest.py, connect.py, grpc_web.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from kizuna.match.gateway.codes import Failure, Refused
    from kizuna.match.gateway.exchange import Answer, Exchange


class Dialect(Protocol):
    async def read(self, exchange: Exchange, kind: type[Message], largest: int) -> Message:
        """The request. Refused, Gone."""

    def refusal(self, refused: Refused) -> Answer:
        """The answer to what was refused, or failed, before anything was said."""


class CallDialect(Dialect, Protocol):
    """For calls that are answered by one message."""

    def answer(self, response: Message) -> Answer: ...


class StreamDialect(Dialect, Protocol):
    """For calls that are answered by any number of messages."""

    @property
    def content_type(self) -> str: ...

    @property
    def begins_at_once(self) -> bool:
        """Whether the status is sent before there is a message: then it is always 200."""

    def item(self, response: Message) -> bytes: ...

    def end(self, failure: Failure | None) -> bytes:
        """What comes last."""
