"""Switches that can be turned while programs run: `poppo:flags:maintenance`.

    async with k.flags.following():
        if k.flags.is_on("maintenance"): …
        if k.flags.is_on("new-ui", of="user-7"): …     on for a part of all users: await k.flags.set("new-ui", "25%")

On the server each is a plain string, which anybody can read and SET: true, 1, on or yes; false, 0, off or no; or the
part of all for whom it is on, such as 25%.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

from kizuna.coordination.keys import FLAG, FLAG_HISTORY
from kizuna.coordination.values.live_values import Change, Condition, LiveValues
from kizuna.errors import WrongValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from kizuna.store.client import Store

Switch: TypeAlias = bool | str
"""True, False, or a text as it may stand on the server: "on", "25%" …"""

_WORDS = {"true": 100.0, "1": 100.0, "on": 100.0, "yes": 100.0, "false": 0.0, "0": 0.0, "off": 0.0, "no": 0.0}
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,9})?) ?%", re.ASCII)
_PARTS = 2**64


class Flag:
    """A declared flag: read from memory, from any thread."""

    def __init__(self, flags: Flags, name: str, default: bool, doc: str) -> None:
        self.name, self.default, self.doc = name, default, doc
        self._flags = flags

    def is_on(self, *, of: str | None = None) -> bool:
        return self._flags.is_on(self.name, of=of, default=self.default)

    def on_change(self, callback: Callable[[Change], object]) -> Callable[[Change], object]:
        """Call it after each change that is seen; can be written as a decorator. Old and new are percentages."""
        self._flags.on_change(self.name, callback)
        return callback


class Flags(LiveValues):
    """What `watch` and `read` tell is the part for whom it is on, in percent: 0.0 is off, 100.0 is on."""

    def __init__(self, store: Store, process: str) -> None:
        super().__init__(store, process, "flags", FLAG, FLAG_HISTORY)

    def declare(self, name: str, *, default: bool = False, doc: str = "") -> Flag:
        """Say that there is such a flag, and what holds while nothing is set."""
        self._memory.declare(name, 100.0 if default else 0.0)
        return Flag(self, name, default, doc)

    def is_on(self, name: str, *, of: str | None = None, default: bool = False) -> bool:
        """Whether it is on, from memory; NotFollowed outside of `following`.

        One that is on for a part is on for those names `of` whom it is: always the same, in every process, and with
        a larger part those and others. Without a name it is then off.
        """
        return is_on(self._memory.read(name, 100.0 if default else 0.0), name, of)

    async def check(self, name: str, *, of: str | None = None, default: bool = False) -> bool:
        """`is_on`, by asking the server."""
        return is_on(await self.read(name, 100.0 if default else 0.0), name, of)

    async def set(
        self, name: str, value: Switch, *, expected: Switch | Condition = Condition.ANYTHING, note: str = ""
    ) -> bool:
        """Change it for everybody; whether it was another before. WrongValue for what is neither a switch nor a
        percentage; with `expected`, ValueChanged if that is not what is set now."""
        text = _text(value)
        percentage(name, text)
        return await self._change(name, text.encode(), expected, note)

    async def turn_on(self, name: str, *, note: str = "") -> bool:
        return await self.set(name, True, note=note)

    async def turn_off(self, name: str, *, note: str = "") -> bool:
        return await self.set(name, False, note=note)

    async def roll_out(self, name: str, percent: float, *, note: str = "") -> bool:
        """Turn it on for this part of all names, in percent."""
        return await self.set(name, f"{percent:g}%", note=note)

    def _decode(self, name: str, raw: bytes) -> float:
        return percentage(name, raw.decode(errors="backslashreplace"))

    def _meant(self, name: str, expected: Any) -> Any:
        return percentage(name, _text(expected))


def percentage(name: str, text: str) -> float:
    """For which part of all the flag is on by this text. WrongValue."""
    word = text.strip().strip('"').lower()
    if word in _WORDS:
        return _WORDS[word]
    found = _PERCENT.fullmatch(word)
    if found is None or float(found[1]) > 100:
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise WrongValue(name, shown, "on, off, or a percentage such as 25%")
    return float(found[1])


def is_on(percent: float, name: str, of: str | None) -> bool:
    if percent >= 100 or percent <= 0 or of is None:
        return percent >= 100
    return lot(name, of) < percent


def lot(name: str, of: str) -> float:
    """Where in 0 … 100 somebody stands for this flag. Not the same for two flags: it would always be the same
    people who try what is new."""
    digest = blake2b(f"{name}\0{of}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") * 100 / _PARTS


def shown(percent: float) -> str:
    """`on`, `off`, or `25%`."""
    return {100.0: "on", 0.0: "off"}.get(percent, f"{percent:g}%")


def _text(value: Switch) -> str:
    return value if isinstance(value, str) else "true" if value else "false"
