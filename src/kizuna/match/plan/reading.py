"""Strict reading of TOML tables: what is wrong is told with its place, all of it at once. Does no I/O.

profiles[1].pools[0].doubles.mmr.min = 'low' (plan.toml): expected a number
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from kizuna.errors import SettingsError
from kizuna.sections import convert

T = TypeVar("T", bound=msgspec.Struct)


def read_table(kind: type[T], table: object, origin: str, place: str = "") -> T:
    """The table as this structure. SettingsError with every problem, if it has an unknown name, lacks one, or a value
    is of another type. `origin` is the file, `place` where in it the table stands."""
    reader = _Reader(origin)
    read = reader.struct(kind, table, place)
    if read is None or reader.problems:
        raise SettingsError(*reader.problems)
    return read


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that is not known."""
    listed = sorted(known)
    found = get_close_matches(name, listed, 1)
    return f"did you mean {found[0]}?" if found else f"there are {', '.join(listed) or 'none'}"


class _Reader:
    def __init__(self, origin: str) -> None:
        self.problems: list[str] = []
        self._origin = origin

    def struct(self, kind: type[T], value: object, place: str) -> T | None:
        """None if it cannot be made."""
        table = self._table(value, place)
        if table is None:
            return None
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        for name in sorted(table.keys() - fields.keys()):
            self._refuse(_below(place, name), f"means nothing; {nearest(name, fields)}")
        missing = [name for name, field in fields.items() if field.required and name not in table]
        for name in missing:
            self._refuse(_below(place, name), "is missing")
        read = {
            field.name: self._value(field.type, table[name], _below(place, name))
            for name, field in fields.items()
            if name in table
        }
        return None if missing else kind(**read)

    def _value(self, kind: Any, value: object, place: str) -> Any:
        if get_origin(kind) in (Union, UnionType):
            # Optional: what is left out is None, but nothing in TOML is.
            kind = next(one for one in get_args(kind) if one is not NoneType)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.struct(kind, value, place)
        if get_origin(kind) is list:
            return self._list(get_args(kind)[0], value, place)
        if get_origin(kind) is dict:
            return self._dict(get_args(kind)[1], value, place)
        return value if kind is Any else self._plain(kind, value, place)

    def _plain(self, kind: Any, value: object, place: str) -> Any:
        if isinstance(value, datetime):
            value = value.isoformat()  # so that it is quoted as it was written
        try:
            return convert(value, kind, place, self._origin)
        except SettingsError as error:
            self.problems += error.problems
            return None

    def _list(self, kind: Any, value: object, place: str) -> list[Any]:
        if not isinstance(value, list):
            self._refuse(place, f"= {value!r}: expected a list")
            return []
        return [self._value(kind, one, f"{place}[{number}]") for number, one in enumerate(value)]

    def _dict(self, kind: Any, value: object, place: str) -> dict[str, Any]:
        table = self._table(value, place)
        return {name: self._value(kind, one, _below(place, name)) for name, one in (table or {}).items()}

    def _table(self, value: object, place: str) -> dict[str, Any] | None:
        if isinstance(value, dict):
            return value
        self._refuse(place, f"= {value!r}: expected a table")
        return None

    def _refuse(self, place: str, problem: str) -> None:
        self.problems.append(f"{place} ({self._origin}) {problem}")


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
