"""Values that change while programs run, and that programs read from memory: what config and flags have in common."""

from __future__ import annotations

import asyncio
import enum
import time
from abc import ABC, abstractmethod
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from kizuna.coordination.roots import roots_of
from kizuna.coordination.values.following import Follower, look_at
from kizuna.coordination.values.history import KEPT_CHANGES, Entry, Expected, Ledger
from kizuna.coordination.values.memory import Change, Changes, Memory
from kizuna.errors import ValueChanged, ValueUnknown, WrongValue
from kizuna.service import running
from kizuna.store.scanning import names_of_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kizuna.service import Running
    from kizuna.store.client import Store
    from kizuna.store.keys import Key

__all__ = ["ANYTHING", "NOTHING", "Change", "Changes", "Condition", "Entry", "LiveValues", "shown"]


class Condition(enum.Enum):
    """What may be expected instead of a value."""

    ANYTHING = "anything"
    NOTHING = "nothing"


ANYTHING = Condition.ANYTHING
"""Whatever is there now."""
NOTHING = Condition.NOTHING
"""That nothing is set."""


class LiveValues(ABC):
    """While somebody follows (`following`, `follower`) reads come from memory, without I/O and from any thread, and a
    change by anybody is seen within a second; milliseconds, where the server announces changes."""

    def __init__(self, store: Store, process: str, noun: str, family: Key, history: Key) -> None:
        roots = roots_of(store)
        self._store, self._noun, self._family, self._roots = store, noun, family, roots
        self._memory = Memory(noun, family, roots, self._decode)
        self._ledger = Ledger(store, process, family, history, roots)

    # -- following ------------------------------------------------------------------------------------------

    def following(self) -> Running:
        """Follow for the length of an `async with` block, which begins when everything has been read."""
        return running(self.follower())

    def follower(self) -> Follower:
        """The same as a service, to run beside others."""
        return Follower(self._store, self._memory)

    def watch(self, pattern: str = "*") -> Changes:
        """Iterate over the changes that are seen from now on, to names that fit the pattern. NotFollowed outside of
        `following`. `*` also stands for several parts."""
        return self._memory.watch(pattern)

    def on_change(self, name: str, callback: Callable[[Change], object]) -> None:
        """Call it after each change that is seen, in the event loop; what it raises is logged."""
        self._memory.on_change(name, callback)

    def problems(self) -> list[WrongValue]:
        """What somebody has set and cannot be used: of each, the last value that could, or the default, holds."""
        return list(self._memory.problems.values())

    @property
    def seconds_since_look(self) -> float:
        """How old what is in memory may be; infinite before the first look."""
        return time.monotonic() - self._memory.looked_at

    # -- asking the server ----------------------------------------------------------------------------------

    async def read(self, name: str, default: Any = NOTHING) -> Any:
        """What is set on the server now. If nothing is: the declared default, or this one, or ValueUnknown.
        WrongValue if it is not of the declared type."""
        raw = await self._store.get(self._key(name))
        if raw is not None:
            return self._decode(name, raw)
        value = self._memory.defaults.get(name, default)
        if value is NOTHING:
            raise ValueUnknown(self._noun, name)
        return value

    async def read_all(self, pattern: str = "*") -> dict[str, bytes]:
        """The texts of all that is set on the server now, by name."""
        names = await self._names(pattern)
        raws = await asyncio.gather(*(self._store.get(self._key(name)) for name in names))
        # One may have been removed since it was found.
        return {name: raw for name, raw in zip(names, raws, strict=True) if raw is not None}

    async def history(self, name: str, *, count: int = KEPT_CHANGES) -> list[Entry]:
        """The last changes that were made through kizuna, the newest first; a hundred are kept."""
        return await self._ledger.entries(name, count)

    async def last_changes(self, names: Iterable[str]) -> dict[str, Entry]:
        """The newest entry in the history of each that has one."""
        return await self._ledger.last_of(names)

    # -- changing -------------------------------------------------------------------------------------------

    async def unset(self, name: str, *, expected: Any = ANYTHING, note: str = "") -> bool:
        """Remove it, so that its default is in force. Whether there was anything to remove; else as `set`."""
        return await self._change(name, None, expected, note)

    async def revert(self, name: str, *, to: Entry | None = None, note: str = "") -> bool:
        """Undo the last change, unless it is no longer the last (ValueChanged); or make it what it was after the
        change `to`. That is a change like any other. Whether there was anything to change."""
        last = to or next(iter(await self._ledger.entries(name, 1)), None)
        if last is None:
            raise WrongValue(name, "reverted", "a change in its history, and there is none")
        raw = last.raw_after if to else last.raw_before
        if raw is not None:
            self._decode(name, raw)
        if to:
            return await self._change(name, raw, ANYTHING, note)
        outcome, now = await self._ledger.change(name, raw, Expected.exactly(last.raw_after), note)
        if outcome == "unexpected":
            raise ValueChanged(name, None if now is None else shown(now))
        return await self._seen(name, outcome)

    # -- inside ---------------------------------------------------------------------------------------------

    @abstractmethod
    def _decode(self, name: str, raw: bytes) -> Any:
        """The value that a text on the server stands for. WrongValue if none."""

    def _meant(self, name: str, expected: Any) -> Any:
        """The value that the caller expects, as `_decode` would give it."""
        return expected

    async def _change(self, name: str, raw: bytes | None, expected: Any, note: str) -> bool:
        if expected is ANYTHING:
            outcome, _ = await self._ledger.change(name, raw, Expected(), note)
            return await self._seen(name, outcome)
        now = await self._store.get(self._key(name))
        while self._is(name, now, expected):
            # Compared as values here and as text there: whoever is faster makes us look again.
            outcome, now = await self._ledger.change(name, raw, Expected.exactly(now), note)
            if outcome != "unexpected":
                return await self._seen(name, outcome)
        raise ValueChanged(name, None if now is None else shown(now))

    async def _seen(self, name: str, outcome: str) -> bool:
        """Who has changed something reads it, too."""
        if self._memory.followers:
            self._memory.know(name)
            await look_at(self._store, self._memory, [name])
        return outcome == "changed"

    def _is(self, name: str, raw: bytes | None, expected: Any) -> bool:
        if raw is None or expected is NOTHING:
            return raw is None and expected is NOTHING
        try:
            return bool(self._decode(name, raw) == self._meant(name, expected))
        except WrongValue:
            return False

    async def _names(self, pattern: str) -> list[str]:
        found = {names["name"] async for names in names_of_all(self._store, self._roots, self._family)}
        return sorted(name for name in found if fnmatchcase(name, pattern))

    def _key(self, name: str) -> str:
        return self._family.build(self._roots.of(name), name=name)


def shown(raw: bytes) -> str:
    """A text on the server as messages quote it."""
    text = raw.decode(errors="backslashreplace")
    return text if len(text) <= 60 else f"{text[:60]}…"
