"""What stands in extensions: an Any on the wire, a plain value in Python where it is one.

    "text" <> StringValue   7 <> Int64Value   1.5 <> DoubleValue   True <> BoolValue   b"…" <> BytesValue

Any other message is taken as it is and comes back as the Any that it was sent in: it must be the same when sent on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from google.protobuf import wrappers_pb2
from google.protobuf.message import DecodeError, Message

from kizuna.errors import WrongValue

if TYPE_CHECKING:
    from google.protobuf.any_pb2 import Any as AnyMessage

Value = str | int | float | bool | bytes | Message

_WRAPPERS: dict[type, type[Message]] = {
    str: wrappers_pb2.StringValue,
    bool: wrappers_pb2.BoolValue,
    int: wrappers_pb2.Int64Value,
    float: wrappers_pb2.DoubleValue,
    bytes: wrappers_pb2.BytesValue,
}
_PLAIN: dict[str, type[Message]] = {
    f"type.googleapis.com/{wrapper.DESCRIPTOR.full_name}": wrapper for wrapper in _WRAPPERS.values()
}
_ANY = "google.protobuf.Any"


def pack_into(fields: Mapping[str, AnyMessage], values: Mapping[str, Value]) -> None:
    """Put plain values, or messages, into a map of Any. WrongValue for what is neither."""
    for name, value in values.items():
        _pack(fields[name], name, value)


def _pack(field: AnyMessage, name: str, value: Value) -> None:
    if isinstance(value, Message):
        if value.DESCRIPTOR.full_name == _ANY:
            field.MergeFromString(value.SerializeToString())
        else:
            field.Pack(value)
        return
    wrapper = _WRAPPERS.get(type(value))
    if wrapper is None:
        raise WrongValue(f"extension {name}", repr(value), "text, a number, a truth value, bytes or a message")
    try:
        field.Pack(wrapper(value=value))
    except (ValueError, TypeError) as error:
        raise WrongValue(f"extension {name}", repr(value), "an integer of 64 bits, or text in UTF-8") from error


def unpack(fields: Mapping[str, AnyMessage]) -> dict[str, Value]:
    """The plain values that these are; an Any of anything else, or one that is damaged, stays as it is."""
    return {name: _plain(field) for name, field in fields.items()}


def _plain(field: AnyMessage) -> Value:
    wrapper = _PLAIN.get(field.type_url)
    if wrapper is None:
        return field
    message = wrapper()
    try:
        message.ParseFromString(field.value)
    except DecodeError:
        return field
    value: Value = message.value  # type: ignore[attr-defined]
    return value


def shown(extensions: Mapping[str, Value]) -> dict[str, object]:
    """For people and JSON: bytes and messages as text, and numbers that JSON has no signs for."""
    return {name: _shown(value) for name, value in extensions.items()}


def _shown(value: Value) -> object:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float):
        return shown_number(value)
    return str(value).strip() if isinstance(value, Message) else value


def shown_number(value: float) -> float | str:
    """As protobuf writes it in JSON: "NaN", "Infinity" and "-Infinity" are text there."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
