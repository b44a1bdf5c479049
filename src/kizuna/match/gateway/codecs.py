"""Messages as bytes: the three ways in which they are written."""

from __future__ import annotations

from typing import Protocol

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from grpc import StatusCode

from kizuna.match.gateway.codes import refused
from kizuna.match.openmatch.pool import POOL
from kizuna.match.serving.statuses import BadCall


class Codec(Protocol):
    name: str

    def encode(self, message: Message) -> bytes:
        """BadCall for what can be stored, but not be written like this."""

    def decode(self, kind: type[Message], body: bytes) -> Message:
        """Refused for what is no such message."""


class Proto:
    name = "proto"

    def encode(self, message: Message) -> bytes:
        return message.SerializeToString()

    def decode(self, kind: type[Message], body: bytes) -> Message:
        try:
            return kind.FromString(body)
        except DecodeError as error:
            raise refused(StatusCode.INVALID_ARGUMENT, f"the body is no {kind.DESCRIPTOR.name}: {error}") from None


class Json:
    """Fields in camelCase or under their own names are taken, those that are not known are passed over; which of the
    two are written is to be chosen. What has the value that it has anyway is not written."""

    name = "json"

    def __init__(self, *, own_names: bool) -> None:
        self._own_names = own_names

    def encode(self, message: Message) -> bytes:
        try:
            text = json_format.MessageToJson(
                message, preserving_proto_field_name=self._own_names, indent=None, descriptor_pool=POOL
            )
        except (json_format.Error, TypeError, ValueError, DecodeError) as error:
            # An extension of a type that only the game knows, above all: others hand it on as it is, JSON cannot.
            text = f"this cannot be written in JSON ({error}); ask for it by gRPC, or as application/proto"
            raise BadCall(StatusCode.UNIMPLEMENTED, text) from error
        return text.encode()

    def decode(self, kind: type[Message], body: bytes) -> Message:
        # A list or a text would pass for an object without fields.
        if not body.lstrip(b" \t\r\n").startswith(b"{"):
            raise refused(StatusCode.INVALID_ARGUMENT, f"the body is no JSON object, which {kind.DESCRIPTOR.name} is")
        try:
            return json_format.Parse(body, kind(), ignore_unknown_fields=True, descriptor_pool=POOL)
        except (json_format.Error, ValueError, RecursionError) as error:
            raise refused(StatusCode.INVALID_ARGUMENT, f"the body is no {kind.DESCRIPTOR.name}: {error}") from None


PROTO = Proto()
OWN_NAMES = Json(own_names=True)
CAMEL_CASE = Json(own_names=False)
