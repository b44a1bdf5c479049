"""Values that can be changed while programs run: `poppo:config:claude:timeout`.

    timeout = k.config.declare("claude:timeout", float, default=30.0, check=lambda s: s > 0)
    async with k.config.following():
        timeout.value                                  from memory; a change by anybody is there within a second
        await k.config.set("claude:timeout", 45)       with a history, and only if it is of the type

On the server each is a plain string of JSON, which anybody can read and SET; a word that is no JSON is text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, get_origin, overload

import msgspec

from kizuna.coordination.keys import CONFIG, CONFIG_HISTORY
from kizuna.coordination.values.history import plain
from kizuna.coordination.values.live_values import ANYTHING, NOTHING, Change, LiveValues, shown
from kizuna.errors import ValueUnknown, WrongValue
from kizuna.sections import expectation

if TYPE_CHECKING:
    from kizuna.store.client import Store

T = TypeVar("T")
Check = Callable[[T], object]
"""Returns something true for what may be; for what may not, something false, or raises ValueError with what may."""

MOST_BYTES = 64 * 1024
"""The history keeps a hundred, and every program reads all of them."""


class Declared(Generic[T]):
    """A value with a type and a default. `value` is read from memory: it costs next to nothing, from any thread."""

    def __init__(self, config: Config, name: str, kind: Any, default: T, check: Check[T] | None, doc: str) -> None:
        self.name, self.kind, self.default, self.doc = name, kind, default, doc
        self._config, self._check = config, check

    @property
    def value(self) -> T:
        """NotFollowed outside of `following`: it might be old."""
        value: T = self._config.get(self.name)
        return value

    def on_change(self, callback: Callable[[Change], object]) -> Callable[[Change], object]:
        """Call it after each change that is seen; can be written as a decorator."""
        self._config.on_change(self.name, callback)
        return callback

    def converted(self, raw: bytes) -> T:
        """The text as the type wants it. WrongValue."""
        try:
            value: T = _converted(raw, self.kind)
        except msgspec.ValidationError as error:
            raise WrongValue(self.name, shown(raw), _expected(self.kind, error)) from None
        self.check(value, shown(raw))
        return value

    def check(self, value: T, text: str) -> None:
        if self._check is None:
            return
        try:
            is_right = self._check(value)
        except ValueError as error:
            raise WrongValue(self.name, text, str(error)) from error
        except Exception as error:
            # Somebody's value and somebody else's check: neither may end the following.
            raise WrongValue(self.name, text, f"what its check does not stumble over ({error!r})") from error
        if not is_right:
            raise WrongValue(self.name, text, self.doc or "another value, by its own check")


class Config(LiveValues):
    def __init__(self, store: Store, process: str) -> None:
        self._declared: dict[str, Declared[Any]] = {}
        super().__init__(store, process, "config", CONFIG, CONFIG_HISTORY)

    @overload
    def declare(
        self, name: str, kind: type[T], *, default: T, check: Check[T] | None = None, doc: str = ""
    ) -> Declared[T]: ...
    @overload
    def declare(
        self, name: str, kind: Any, *, default: Any, check: Check[Any] | None = None, doc: str = ""
    ) -> Declared[Any]: ...
    def declare(
        self, name: str, kind: Any, *, default: Any, check: Check[Any] | None = None, doc: str = ""
    ) -> Declared[Any]:
        """Say what type a value has, and what holds while nothing is set. Any type that msgspec can convert to: float,
        list[str], a Struct, Annotated with limits … `doc` says what is expected. WrongValue if the default is not
        right, or if the name was declared otherwise before."""
        before = self._declared.get(name)
        if before is not None and (before.kind, before.default) != (kind, default):
            raise WrongValue(
                name, "declared twice", f"{_named(before.kind)} with default {before.default!r}, as before"
            )
        declared = Declared(self, name, kind, default, check, doc)
        if default is not None:
            declared.converted(encoded(name, default))
        self._declared[name] = declared
        self._memory.declare(name, default)
        return declared

    @property
    def declared(self) -> Mapping[str, Declared[Any]]:
        return self._declared

    def get(self, name: str, default: Any = None) -> Any:
        """What is in force, from memory: what is set; else what was declared; else this default. NotFollowed outside
        of `following`. Lists and dictionaries are shared with all who read: do not change them."""
        return self._memory.read(name, default)

    def __getitem__(self, name: str) -> Any:
        """The same, and ValueUnknown, which is a KeyError, where there is no default."""
        value = self._memory.read(name, NOTHING)
        if value is NOTHING:
            raise ValueUnknown("config", name)
        return value

    async def set(self, name: str, value: Any, *, expected: Any = ANYTHING, note: str = "") -> bool:
        """Change it for everybody; whether it was another before. The history says who, when and why.

        WrongValue if it is not of the declared type. With `expected`, only if that is what is set now (NOTHING: if
        nothing is), else ValueChanged; of several who try at once, one succeeds.
        """
        raw = encoded(name, value)
        self._decode(name, raw)
        return await self._change(name, raw, expected, note)

    async def set_many(self, values: Mapping[str, Any], *, note: str = "") -> int:
        """Set each of them; how many were others before. All are checked before the first is set; they are not set
        as one."""
        for name, value in values.items():
            self._decode(name, encoded(name, value))
        return sum([await self.set(name, value, note=note) for name, value in values.items()])

    def _decode(self, name: str, raw: bytes) -> Any:
        declared = self._declared.get(name)
        return plain(raw) if declared is None else declared.converted(raw)


def encoded(name: str, value: Any) -> bytes:
    """JSON. WrongValue for what JSON cannot hold, and for what is too large."""
    try:
        # Not msgspec's own, which turns NaN into null.
        builtin = msgspec.to_builtins(value, str_keys=True)
        raw = json.dumps(builtin, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise WrongValue(name, f"{value!r}", f"something that JSON can hold ({error})") from error
    if len(raw) > MOST_BYTES:
        raise WrongValue(
            name, f"{len(raw)} bytes long", f"at most {MOST_BYTES}; keep what is larger in a key of its own"
        )
    return raw


def _converted(raw: bytes, kind: Any) -> Any:
    try:
        return msgspec.convert(plain(raw), kind)
    except msgspec.ValidationError as wrong:
        # What somebody wrote by hand: 1 for true, 12345 where text is wanted.
        try:
            return msgspec.convert(raw.decode(errors="backslashreplace"), kind, strict=False)
        except msgspec.ValidationError:
            # What is wrong with it as it stands is the better sentence.
            raise wrong from None


def _expected(kind: Any, error: msgspec.ValidationError) -> str:
    if kind in (int, float, bool, str) or get_origin(kind) in (Annotated, Literal):
        return expectation(kind)
    return f"{_named(kind)} ({error})"


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
