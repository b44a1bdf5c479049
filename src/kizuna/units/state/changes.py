"""What whoever watches the state of a unit is told, and has been told. This module does no I/O."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from kizuna.codecs import Codec

Kind = Literal["set", "expired", "deleted"]

NEVER = math.inf
# Up to here a value is remembered as it is; a longer one by its hash, which is one byte longer.
_LONGEST_AS_IT_IS = 63


@dataclass(frozen=True, slots=True)
class StateChange:
    """`raw` are the bytes that are kept now, None if it has ended. `found`: it was there when the watch began."""

    id: str
    kind: Kind
    raw: bytes | None
    found: bool = False
    codec: Codec = field(kw_only=True, repr=False, compare=False)

    @property
    def value(self) -> Any:
        """What is kept now; None if it has ended. Undecodable, each time, if it is in another format."""
        return None if self.raw is None else self.codec.decode(self.raw)


class _Last(NamedTuple):
    fingerprint: bytes
    due: float
    """Not before this, on the clock of whoever tells, does it end."""


class Told:
    """What was told last of each key: not the value, but enough to know another one, and when it is due to end."""

    def __init__(self) -> None:
        self.soonest = NEVER
        """When the next one is due."""
        self._last: dict[bytes, _Last] = {}

    @property
    def keys(self) -> Iterable[bytes]:
        """Of all that were there when they were looked at last."""
        return self._last.keys()

    def wants_end(self, key: bytes, raw: bytes | None, now: float) -> bool:
        """Whether it has to be asked when this value ends: it is another one, or should have ended."""
        if raw is None:
            return False
        last = self._last.get(key)
        return last is None or last.due <= now or last.fingerprint != _fingerprint(raw)

    def overdue(self, now: float) -> list[bytes]:
        """Those that should have ended by now, each once."""
        if now < self.soonest:
            return []
        self.soonest = min((last.due for last in self._last.values() if last.due > now), default=NEVER)
        return [key for key, last in self._last.items() if last.due <= now]

    def take(
        self, key: bytes, raw: bytes | None, *, due: float | None, now: float, has_expired: bool = False
    ) -> Kind | None:
        """Take note of what is there now; what that is to whoever is told, or None if it is nothing new.

        `due` is when it ends, None if that was not asked. `has_expired`: so it has, whatever we knew, if it is gone.
        """
        last = self._last.get(key)
        if raw is None:
            return None if last is None else self._forget(key, has_expired=has_expired or last.due <= now)
        fingerprint = _fingerprint(raw)
        if due is None:
            due = NEVER if last is None else last.due
        self._last[key] = _Last(fingerprint, due)
        self.soonest = min(self.soonest, due)
        return None if last is not None and last.fingerprint == fingerprint else "set"

    def _forget(self, key: bytes, *, has_expired: bool) -> Kind:
        del self._last[key]
        return "expired" if has_expired else "deleted"


def _fingerprint(raw: bytes) -> bytes:
    return raw if len(raw) <= _LONGEST_AS_IT_IS else hashlib.blake2b(raw).digest()
