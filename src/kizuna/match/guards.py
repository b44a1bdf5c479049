"""How a step keeps out of the way of those who pick tickets step by step, under minimatch's lock.

Every step of ours is one script that looks at the lock first, and does nothing while somebody else has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from kizuna.errors import TicketsLocked
from kizuna.match.fetch_lock import FetchLock
from kizuna.store.link import backoff

if TYPE_CHECKING:
    from kizuna.settings import MatchSettings
    from kizuna.store.client import Store

Step = Callable[[bytes], Awaitable[list[Any]]]
"""Takes the token by which the lock is ours, or nothing; returns what the script said."""

_NO_TOKEN = b""
# A step of minimatch takes about a millisecond.
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.02


class Guard(Protocol):
    async def take(self, step: Step) -> list[Any]:
        """Take the step once nobody else is at work. TicketsLocked if that takes too long."""


class ScriptGuard:
    """Tries until the lock is free: it then is for as long as the script runs."""

    def __init__(self, prefix: str, wait_s: float) -> None:
        self._prefix, self._wait_s = prefix, wait_s

    async def take(self, step: Step) -> list[Any]:
        reply = await step(_NO_TOKEN)
        return reply if reply[0] != b"locked" else await self._take_later(step)

    async def _take_later(self, step: Step) -> list[Any]:
        until = monotonic() + self._wait_s
        for pause_s in backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S):
            await asyncio.sleep(pause_s)
            reply = await step(_NO_TOKEN)
            if reply[0] != b"locked":
                return reply
            if monotonic() > until:
                break
        raise TicketsLocked(self._prefix, self._wait_s)


class LockGuard:
    """Takes the lock itself, as minimatch does. If it was lost before the script ran, nothing was done: again, then."""

    def __init__(self, lock: FetchLock, prefix: str, wait_s: float) -> None:
        self._lock, self._prefix, self._wait_s = lock, prefix, wait_s

    async def take(self, step: Step) -> list[Any]:
        until = monotonic() + self._wait_s
        while True:
            async with self._lock.hold(wait_s=self._wait_s) as token:
                reply = await step(token)
            if reply[0] != b"locked":
                return reply
            if monotonic() > until:
                raise TicketsLocked(self._prefix, self._wait_s)


def make_guard(store: Store, prefix: str, settings: MatchSettings) -> Guard:
    if settings.guard == "lock":
        return LockGuard(FetchLock(store, prefix, settings.lock_s), prefix, settings.lock_wait_s)
    return ScriptGuard(prefix, settings.lock_wait_s)
