"""gRPC-Web, which browsers can speak: frames as in gRPC, with the trailers as the last of them; as text, in base64."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from grpc import StatusCode

from kizuna.match.gateway.codecs import CAMEL_CASE, PROTO
from kizuna.match.gateway.codes import refused
from kizuna.match.gateway.exchange import Answer
from kizuna.match.gateway.frames import GRPC_WEB_TRAILERS, frame, only_frame

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from kizuna.match.gateway.codecs import Codec
    from kizuna.match.gateway.codes import Failure, Refused
    from kizuna.match.gateway.exchange import Exchange

# What may stand in a trailer as it is: all that is printed in ASCII, but the sign that begins an escape.
_AS_IT_IS = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"

_PIECE = re.compile(rb"[^=]+={0,2}")


@dataclass(frozen=True)
class GrpcWeb:
    """For calls and for streams: the status is always 200."""

    content_type: str
    codec: Codec
    begins_at_once = True

    @property
    def is_text(self) -> bool:
        return self.content_type.startswith("application/grpc-web-text")

    async def read(self, exchange: Exchange, kind: type[Message], largest: int) -> Message:
        body = await exchange.body(largest)
        framed = _from_base64(body) if self.is_text else body
        return self.codec.decode(kind, only_frame(framed, exchange.encoding("grpc-encoding"), largest))

    def answer(self, response: Message) -> Answer:
        return Answer(200, self.content_type, self.item(response) + self.end(None))

    def item(self, response: Message) -> bytes:
        return self._written(frame(self.codec.encode(response)))

    def end(self, failure: Failure | None) -> bytes:
        number, text = (failure.number, failure.text) if failure else (0, "")
        trailers = f"grpc-status: {number}\r\ngrpc-message: {quote(text, safe=_AS_IT_IS)}\r\n"
        return self._written(frame(trailers.encode("ascii"), GRPC_WEB_TRAILERS))

    def refusal(self, refused: Refused) -> Answer:
        return Answer(200, self.content_type, self.end(refused.failure), refused.headers)

    def _written(self, data: bytes) -> bytes:
        return base64.b64encode(data) if self.is_text else data


def _from_base64(body: bytes) -> bytes:
    """Pieces that were written one after the other, each with an end of its own."""
    try:
        return b"".join(base64.b64decode(piece, validate=True) for piece in _PIECE.findall(body))
    except binascii.Error as error:
        raise refused(StatusCode.INVALID_ARGUMENT, f"the body is not in base64: {error}") from None


GRPC_WEB = {
    dialect.content_type: dialect
    for dialect in (
        GrpcWeb("application/grpc-web", PROTO),
        GrpcWeb("application/grpc-web+proto", PROTO),
        GrpcWeb("application/grpc-web+json", CAMEL_CASE),
        GrpcWeb("application/grpc-web-text", PROTO),
        GrpcWeb("application/grpc-web-text+proto", PROTO),
    )
}
