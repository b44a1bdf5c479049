"""How values become bytes, and back: plain, without a header, so that anybody can read what we write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from kizuna.errors import Undecodable


class Codec(NamedTuple):
    """`decode` raises Undecodable for bytes that are not in this format; `encode` TypeError for what has none."""

    name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def json_of(kind: Any) -> Codec:
    """JSON that is checked against a type: a dataclass, a msgspec.Struct, list[int] …"""
    decoder = msgspec.json.Decoder(kind)
    return Codec("json", msgspec.json.encode, _checked("JSON", decoder.decode))


def msgpack_of(kind: Any) -> Codec:
    decoder = msgspec.msgpack.Decoder(kind)
    return Codec("msgpack", msgspec.msgpack.encode, _checked("msgpack", decoder.decode))


def _checked(format_: str, decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def decode_or_refuse(raw: bytes) -> Any:
        try:
            return decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Undecodable(format_, str(error), raw) from error

    return decode_or_refuse


def _bytes(value: bytes | str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(
            f"only bytes and text can be sent as they are, not {type(value).__name__}: choose another codec"
        )
    return bytes(value)


RAW = Codec("raw", _bytes, bytes)
TEXT = Codec("text", _bytes, _checked("UTF-8 text", bytes.decode))
JSON = json_of(Any)
MSGPACK = msgpack_of(Any)
