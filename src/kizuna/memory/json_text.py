"""Content as JSON text that others read as we do: numbers whole, text as it is, nothing that is no JSON."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, NoReturn

import msgspec

from kizuna.errors import TooLarge, Undecodable, WrongValue

_SLOWER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_SIMPLE = frozenset({str, int, bool, type(None)})


def encoded(what: str, value: Any, largest_bytes: int) -> bytes:
    """WrongValue for what JSON has no words for, NaN among it; TooLarge for more than is sent."""
    try:
        # The quick one also writes what is no JSON, in words of its own: null for NaN, text for bytes and dates, lists
        # for sets. So it is given only what is plain; whether the rest can be said, the slower one knows.
        raw = msgspec.json.encode(value) if _is_plain(value) else _SLOWER.encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongValue(what, _shown(value), f"something that JSON can say ({error})") from error
    if len(raw) > largest_bytes:
        raise TooLarge(what, len(raw), largest_bytes, "memory.largest_bytes")
    return raw


def _is_plain(value: Any) -> bool:
    """Whether it is made of nothing but what JSON itself has, and all numbers are some. Loops: each write goes here."""
    kind = type(value)
    if kind is dict:
        for name in value:
            if type(name) is not str:
                return False
        value = value.values()
    elif kind is not list and kind is not tuple:
        return kind in _SIMPLE or (kind is float and isfinite(value))
    for one in value:  # noqa: SIM110 - a generator would take twice as long
        if type(one) not in _SIMPLE and not _is_plain(one):
            return False
    return True


def decoded(raw: bytes) -> Any:
    """Undecodable if it is no JSON."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        # It also takes what JavaScript writes for one half of a surrogate pair.
        return json.loads(raw, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise Undecodable("JSON", str(error), raw) from error


def _finite(number: str) -> float:
    if not isfinite(float(number)):
        raise ValueError(f"{number} is more than a number can be")
    return float(number)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _shown(value: Any) -> str:
    """Its type: the value itself may be a secret."""
    return f"this {type(value).__name__}"
