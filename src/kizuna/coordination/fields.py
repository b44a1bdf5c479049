"""Fields of a hash that people and other programs read: text as it is, everything else as JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from kizuna.errors import WrongValue


def texts_of(fields: Mapping[str, object], *, ours: Collection[str]) -> dict[str, str]:
    """WrongValue for what JSON has not, and for the names that kizuna itself writes."""
    for name in fields:
        if name in ours or not name:
            raise WrongValue("the name of a field", repr(name), "any other name: this one is written by kizuna itself")
    return {name: value if isinstance(value, str) else _json(name, value) for name, value in fields.items()}


def _json(name: str, value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError) as error:
        raise WrongValue(name, repr(value), f"text, or something that JSON has ({error})") from None
