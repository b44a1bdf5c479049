"""Connect, which minimatch's clients speak: a call is one body, a stream is framed, and ends with a JSON object.

POST /openmatch.FrontendService/GetTicket     application/json or application/proto
{"code":"not_found","message":"ticket id: x not found"}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpc import StatusCode

from kizuna.match.gateway.codecs import CAMEL_CASE, PROTO
from kizuna.match.gateway.codes import refused
from kizuna.match.gateway.exchange import Answer
from kizuna.match.gateway.frames import CONNECT_END, frame, only_frame

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from kizuna.match.gateway.codecs import Codec
    from kizuna.match.gateway.codes import Failure, Refused
    from kizuna.match.gateway.exchange import Exchange


@dataclass(frozen=True)
class ConnectCall:
    codec: Codec

    async def read(self, exchange: Exchange, kind: type[Message], largest: int) -> Message:
        _check_version(exchange)
        return self.codec.decode(kind, await exchange.body(largest))

    def answer(self, response: Message) -> Answer:
        return Answer(200, f"application/{self.codec.name}", self.codec.encode(response))

    def refusal(self, refused: Refused) -> Answer:
        return connect_refusal(refused)


@dataclass(frozen=True)
class ConnectStream:
    codec: Codec
    begins_at_once = True

    @property
    def content_type(self) -> str:
        return f"application/connect+{self.codec.name}"

    async def read(self, exchange: Exchange, kind: type[Message], largest: int) -> Message:
        _check_version(exchange)
        encoding = exchange.encoding("connect-content-encoding")
        return self.codec.decode(kind, only_frame(await exchange.body(largest), encoding, largest))

    def item(self, response: Message) -> bytes:
        return frame(self.codec.encode(response))

    def end(self, failure: Failure | None) -> bytes:
        told = {"error": _error(failure)} if failure else {}
        return frame(json.dumps(told).encode(), CONNECT_END)

    def refusal(self, refused: Refused) -> Answer:
        return Answer(200, self.content_type, self.end(refused.failure), refused.headers)


def connect_refusal(refused: Refused) -> Answer:
    return Answer(refused.status, "application/json", json.dumps(_error(refused.failure)).encode(), refused.headers)


def _error(failure: Failure) -> dict[str, str]:
    return {"code": failure.connect_name, "message": failure.text}


def _check_version(exchange: Exchange) -> None:
    """A client need not say it: curl, for one, does not."""
    version = exchange.headers.get("connect-protocol-version", "1")
    if version != "1":
        raise refused(StatusCode.INVALID_ARGUMENT, f"Connect-Protocol-Version {version!r} is not known here; 1 is")


CONNECT_CALLS = {"application/json": ConnectCall(CAMEL_CASE), "application/proto": ConnectCall(PROTO)}
CONNECT_STREAMS = {dialect.content_type: dialect for dialect in (ConnectStream(CAMEL_CASE), ConnectStream(PROTO))}
