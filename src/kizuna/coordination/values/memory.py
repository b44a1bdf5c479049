"""What is known about values that others change: read without I/O, from any thread. This module does no I/O.

take(name, raw) ──> decoded ──> in force ──> callbacks, those who watch
                       └─ wrong ──> a problem; what was in force stays
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Self
from weakref import WeakSet

from msgspec import Struct

from kizuna.errors import NotFollowed, WrongValue
from kizuna.store.keys import Key, Roots

log = logging.getLogger("kizuna.coordination")

# A program that asks for ever new names that nobody has set must not fill the memory.
_MOST_ASKED_FOR = 10_000


class Change(Struct, frozen=True):
    """What is in force has changed: from `old` to `new`, each of them None where nothing is set or declared.

    Told is what was seen. Of several changes in quick succession only the last may be; the history has them all.
    """

    name: str
    old: Any
    new: Any


class Changes:
    """The changes of names that fit a pattern, as they are seen. Ends when nobody follows any more.

    Who is slow gets one change for each name, from what it was told last to what is in force now; and none, if that
    is the same again.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._pending: dict[str, Change] = {}
        self._something = asyncio.Event()
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        while not self._pending:
            if self._ended:
                raise StopAsyncIteration
            self._something.clear()
            await self._something.wait()
        return self._pending.pop(next(iter(self._pending)))

    def take(self, change: Change) -> None:
        if fnmatchcase(change.name, self._pattern):
            earlier = self._pending.pop(change.name, None)
            if earlier is None or earlier.old != change.new:
                old = change.old if earlier is None else earlier.old
                self._pending[change.name] = Change(change.name, old, change.new)
            self._something.set()

    def end(self) -> None:
        self._ended = True
        self._something.set()


class Memory:
    """`values` holds what is in force, `known` the keys to look at, by root and name."""

    def __init__(self, noun: str, family: Key, roots: Roots, decode: Callable[[str, bytes], Any]) -> None:
        self.noun, self.family, self.roots = noun, family, roots
        self.values: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        self.problems: dict[str, WrongValue] = {}
        self.known: dict[str, dict[str, str]] = {root: {} for root in roots.all}
        self.followers = 0
        self.looked_at = -math.inf
        """When everything was last looked at, on time.monotonic's clock."""
        self._decode = decode
        self._raw: dict[str, bytes] = {}
        self._asked_for: set[str] = set()
        self._callbacks: dict[str, list[Callable[[Change], object]]] = {}
        # Weakly, so that who stops to iterate need not say so.
        self._watching: WeakSet[Changes] = WeakSet()
        self._is_complete = False

    # -- for those who read ---------------------------------------------------------------------------------

    def read(self, name: str, default: Any) -> Any:
        """What is in force: what is set, or the declared default, or this one. NotFollowed if it may be old."""
        if not self.followers:
            raise NotFollowed(self.noun)
        try:
            return self.values[name]
        except KeyError:
            self._ask_for(name)
            return self.defaults.get(name, default)

    def declare(self, name: str, default: Any) -> None:
        """From now on looked at, also if it is not set. What is known of it is decoded anew."""
        self.know(name)
        self.defaults[name] = default
        raw = self._raw.pop(name, None)
        self.values.pop(name, None)
        self.problems.pop(name, None)
        if raw is not None:
            self._take_silently(name, raw)

    def on_change(self, name: str, callback: Callable[[Change], object]) -> None:
        self._callbacks.setdefault(name, []).append(callback)

    def watch(self, pattern: str) -> Changes:
        if not self.followers:
            raise NotFollowed(self.noun)
        changes = Changes(pattern)
        self._watching.add(changes)
        return changes

    # -- for those who follow -------------------------------------------------------------------------------

    def know(self, name: str) -> None:
        """Look at this name from now on. IllegalName if there can be none."""
        root = self.roots.of(name)
        if name not in self.known[root]:
            self.known[root][name] = self.family.build(root, name=name)

    def take(self, name: str, raw: bytes | None) -> None:
        """What is on the server now; tells whoever wants to know, if another value is in force by it."""
        if raw == self._raw.get(name):
            if raw is None:
                self._forget_key(name)
            return
        old = self._in_force(name)
        self._take_silently(name, raw)
        new = self._in_force(name)
        if self._is_complete and new != old:
            self._tell(Change(name, old[1], new[1]))

    def complete(self) -> None:
        """All there is has been taken. What is found from now on is a change."""
        self._is_complete = True

    def enter(self) -> None:
        self.followers += 1

    def leave(self) -> None:
        self.followers -= 1
        if not self.followers:
            for changes in list(self._watching):
                changes.end()
            self._watching.clear()

    # -- inside ---------------------------------------------------------------------------------------------

    def _in_force(self, name: str) -> tuple[bool, Any]:
        """Also whether there is one: null is a value."""
        if name in self.values:
            return True, self.values[name]
        return name in self.defaults, self.defaults.get(name)

    def _take_silently(self, name: str, raw: bytes | None) -> None:
        if raw is None:
            self._forget(name)
            return
        self._raw[name] = raw
        try:
            self.values[name] = self._decode(name, raw)
        except WrongValue as wrong:
            self.problems[name] = wrong
            log.warning("value not taken", extra={"noun": self.noun, "value_name": name, "error": str(wrong)})
        else:
            self.problems.pop(name, None)

    def _forget(self, name: str) -> None:
        self._raw.pop(name, None)
        self.values.pop(name, None)
        self.problems.pop(name, None)
        self._forget_key(name)

    def _forget_key(self, name: str) -> None:
        """Names that come and go must not gather here; if it comes again, that is heard."""
        if name not in self.defaults and name not in self._asked_for:
            self.known[self.roots.of(name)].pop(name, None)

    def _ask_for(self, name: str) -> None:
        """Where no notification tells of a new value, it is found by looking at what was asked for."""
        if name not in self._asked_for and len(self._asked_for) < _MOST_ASKED_FOR:
            self.know(name)
            self._asked_for.add(name)

    def _tell(self, change: Change) -> None:
        for changes in list(self._watching):
            changes.take(change)
        for callback in tuple(self._callbacks.get(change.name, ())):
            try:
                callback(change)
            except Exception:
                log.exception("callback failed", extra={"noun": self.noun, "value_name": change.name})
