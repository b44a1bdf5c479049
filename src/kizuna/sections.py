"""Typed groups of settings that check themselves and never show a secret.

A `Section` is right from the moment it exists: whoever makes one, from a file or in code, gets the same
checks and the same sentences.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from kizuna.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

# Greedy up to the last "@": a password that holds an unescaped "@" or "/" is hidden whole.
_USER_AND_PASSWORD = re.compile(r"^([^:/@]*://)?([^:@]*:)?(.*)@", re.DOTALL)
# What no file name, address or command can hold: NUL, and bytes of the environment that were not UTF-8.
_UNUSABLE = re.compile("[\0\ud800-\udfff]")
_PASSWORD_IN_QUERY = re.compile(r"([?&][^=&#]*(?:password|secret|token)[^=&#]*=)[^&#]+", re.IGNORECASE)


class Secret(str):
    """Text that is used like any other, and not shown by a repr, an error or `settings show`.

    Formatting it yields the text itself: that is how it is used.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def redact_url(url: str) -> str:
    """The URL without its password, fit for messages and logs. Other text comes back as it is.

    A lone `redis://word@host` hides the word: to redis-cli it is a password.
    """
    return _PASSWORD_IN_QUERY.sub(r"\1***", _USER_AND_PASSWORD.sub(_hide_password, url))


def _hide_password(userinfo: re.Match[str]) -> str:
    scheme, user, _ = userinfo.groups()
    if scheme is None and user is None:
        return userinfo[0]
    return f"{scheme or ''}{user or ''}***@"


def shown(value: Any) -> Any:
    """The value as people may see it."""
    if isinstance(value, Secret):
        return "***" if value else ""
    return redact_url(value) if isinstance(value, str) else value


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of kizuna.toml. Raises SettingsError if a value is wrong or two contradict each other."""

    def __post_init__(self) -> None:
        for name, kind in kinds(type(self)).items():
            value = getattr(self, name)
            checked = convert(value, kind, f"{self.title()}.{name}", origin="code")
            if checked is not value:
                msgspec.structs.force_setattr(self, name, checked)
        problems = [f"{self.title()}: {problem}" for problem in self.contradictions()]
        if problems:
            raise SettingsError(*problems)

    @classmethod
    def title(cls) -> str:
        """The name of the table: `store` for StoreSettings."""
        return cls.__name__.removesuffix("Settings").lower()

    def contradictions(self) -> Iterable[str]:
        """What is wrong although each value by itself is right; for sections to override."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, shown(getattr(self, name))) for name in self.__struct_fields__]


@cache
def kinds(section: type[Struct]) -> dict[str, Any]:
    """The type of each field, with the limits that are noted on it."""
    return {field.name: field.type for field in msgspec.structs.fields(section)}


def convert(value: object, kind: Any, name: str, origin: str, *, from_text: bool = False) -> Any:
    """The value as the type wants it; from text, "3710" is a number and "true" a truth.

    Raises SettingsError: which setting, the value unless it is secret, where it was set, what is expected.
    """
    try:
        return msgspec.convert(_usable(value), kind, strict=not from_text, dec_hook=_make_secret)
    except msgspec.ValidationError:
        what = name if kind is Secret else f"{name} = {shown(value)!r}"
        # Not chained: msgspec may quote the value.
        raise SettingsError(f"{what} ({origin}): expected {expectation(kind)}") from None


def _usable(value: object) -> object:
    if isinstance(value, str) and _UNUSABLE.search(value):
        raise msgspec.ValidationError("text with NUL, or not from UTF-8")
    return value


def _make_secret(kind: type, value: object) -> Secret:
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise msgspec.ValidationError(f"expected text for {kind.__name__}")


def expectation(kind: Any) -> str:
    """What a type takes, as the end of a sentence: `a whole number, at least 0 and at most 65535`."""
    if get_origin(kind) is Annotated:
        plain, *notes = get_args(kind)
        meta = next(note for note in notes if isinstance(note, Meta))
        return meta.description or f"{expectation(plain)}{_limits(meta)}"
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, "text")


def _limits(meta: Meta) -> str:
    limits = {"at least": meta.ge, "above": meta.gt, "at most": meta.le, "below": meta.lt}
    given = [f"{word} {limit}" for word, limit in limits.items() if limit is not None]
    return f", {' and '.join(given)}" if given else ""
