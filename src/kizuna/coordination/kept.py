"""Values that are kept for a while: temporary ones for an hour, sessions for a month, unless said otherwise.

await k.temp.set("report:42", {"pages": 3})
await k.temp.get("report:42")                 {"pages": 3}, or None an hour later
await k.sessions.touch("user-7")              another month
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from kizuna.codecs import JSON, Codec
from kizuna.coordination.keys import SESSION, TEMP
from kizuna.coordination.roots import roots_of
from kizuna.store.lifetimes import lifetime_ms
from kizuna.store.scanning import names_of_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kizuna.store.client import Store
    from kizuna.store.keys import Key


def temporary(store: Store) -> Kept:
    return Kept(store, TEMP, store.settings.kept.temp_s)


def sessions(store: Store) -> Kept:
    return Kept(store, SESSION, store.settings.kept.session_s)


class Kept:
    """Every value has an end. Repeating a call after OutcomeUnknown is harmless, whichever it was."""

    def __init__(self, store: Store, family: Key, ttl_s: float, codec: Codec = JSON) -> None:
        self.ttl_s = ttl_s
        """How long a value is kept that is set without another time."""
        self._store, self._family, self._codec = store, family, codec
        self._roots = roots_of(store)

    def with_codec(self, codec: Codec) -> Kept:
        """The same values in another format: text, raw bytes, or JSON that is checked against a type."""
        return Kept(self._store, self._family, self.ttl_s, codec)

    async def set(self, name: str, value: Any, *, ttl_s: float | None = None) -> None:
        """Keep it from now on, in place of what was there."""
        await self._store.call("SET", self._key(name), self._codec.encode(value), "PX", self._ms(ttl_s))

    async def get(self, name: str, default: Any = None) -> Any:
        """The value; or `default` if there is none, or none any more. Undecodable if it is in another format."""
        raw = await self._store.get(self._key(name))
        return default if raw is None else self._codec.decode(raw)

    async def touch(self, name: str, *, ttl_s: float | None = None) -> bool:
        """Keep it as long again, from now on. Whether it was still there."""
        return bool(await self._store.call("PEXPIRE", self._key(name), self._ms(ttl_s)))

    async def ends_in_s(self, name: str) -> float | None:
        """How long it is still kept; None if it is not there."""
        ms = int(await self._store.call("PTTL", self._key(name)))
        # -1 is that of a key without an end, which somebody else has written.
        return None if ms == -2 else math.inf if ms == -1 else ms / 1000

    async def delete(self, name: str) -> bool:
        """Whether it was there."""
        return bool(await self._store.call("DEL", self._key(name)))

    async def names(self, pattern: str = "*") -> AsyncIterator[str]:
        """The names there are, in no order, each once; `*` in the pattern also stands for several parts."""
        seen: set[str] = set()
        async for found in names_of_all(self._store, self._roots, self._family):
            name = found["name"]
            if name not in seen and fnmatchcase(name, pattern):
                seen.add(name)
                yield name

    def _key(self, name: str) -> str:
        return self._family.build(self._roots.of(name), name=name)

    def _ms(self, ttl_s: float | None) -> int:
        return lifetime_ms(self.ttl_s if ttl_s is None else ttl_s)
