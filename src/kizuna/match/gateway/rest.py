"""JSON as grpc-gateway writes it in Open Match: fields under their own names, streams line by line.

{"result":{"assignment":{"connection":"10.0.0.7:7777"}}}
{"error":{"code":5,"message":"Ticket id: x not found"}}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kizuna.match.gateway.codecs import OWN_NAMES
from kizuna.match.gateway.exchange import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

    from kizuna.match.gateway.codes import Failure, Refused
    from kizuna.match.gateway.exchange import Exchange

JSON_TYPE = "application/json"


@dataclass(frozen=True)
class _Rest:
    in_path: Mapping[str, str]
    has_body: bool

    async def read(self, exchange: Exchange, kind: type[Message], largest: int) -> Message:
        body = await exchange.body(largest) if self.has_body else b""
        request = OWN_NAMES.decode(kind, body) if body else kind()
        for name, value in self.in_path.items():
            setattr(request, name, value)
        return request


class RestCall(_Rest):
    def answer(self, response: Message) -> Answer:
        return Answer(200, JSON_TYPE, OWN_NAMES.encode(response))

    def refusal(self, refused: Refused) -> Answer:
        return plain_refusal(refused)


class RestStream(_Rest):
    content_type = JSON_TYPE
    # So an error that comes before the first message has a status of its own.
    begins_at_once = False

    def item(self, response: Message) -> bytes:
        return b'{"result":%b}\n' % OWN_NAMES.encode(response)

    def end(self, failure: Failure | None) -> bytes:
        return b'{"error":%b}\n' % _status(failure) if failure else b""

    def refusal(self, refused: Refused) -> Answer:
        return Answer(refused.status, JSON_TYPE, self.end(refused.failure), refused.headers)


def plain_refusal(refused: Refused) -> Answer:
    return Answer(refused.status, JSON_TYPE, _status(refused.failure), refused.headers)


def _status(failure: Failure) -> bytes:
    return json.dumps({"code": failure.number, "message": failure.text}).encode()
