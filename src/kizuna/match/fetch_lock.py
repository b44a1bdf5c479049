"""The lock of minimatch, which whoever picks tickets in several steps holds meanwhile.

    rueidislock:0:<prefix>fetchTicketsLock    24 random bytes, ends after lock_s      two of the three keys
    rueidislock:1:<prefix>fetchTicketsLock    …                                       have the lock
    rueidislock:2:<prefix>fetchTicketsLock    …

    free ──taken──> held ──extended every half of lock_s──> held ──> given back
                      └─ not extended in time, or removed by hand ──> lost: somebody else may have it

The Go library takes the keys one after the other; a script takes them at once, so we never hold a part of them that
is of use to nobody. The ends are by the server's clock: by ours, which may be another, a lock could be over before it
is taken, or stay long after its holder has died.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from kizuna.errors import NotSent, StoreError, TicketsLocked
from kizuna.match.keys import LOCK_0, LOCK_1, LOCK_2, PLAIN_LOCK
from kizuna.store.link import backoff
from kizuna.store.repeating import until_known
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.store.client import Store

log = logging.getLogger("kizuna.match")

take_fetch_lock = Script.load(__package__, "take_fetch_lock")
extend_fetch_lock = Script.load(__package__, "extend_fetch_lock")
release_fetch_lock = Script.load(__package__, "release_fetch_lock")

TOKEN_BYTES = 24
# A step of minimatch holds the lock for about a millisecond. Who waits longer asks 50 to 100 times in a second.
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.02


class FetchLock:
    """One for a process and prefix: its callers get their turns in the order in which they came."""

    def __init__(self, store: Store, prefix: str, lock_s: float) -> None:
        self._store, self._prefix = store, prefix
        self._lock_s, self._lock_ms = lock_s, max(1, round(lock_s * 1000))
        self._keys: dict[str, Any] = {
            f"lock_{number}": key.build(prefix) for number, key in enumerate((LOCK_0, LOCK_1, LOCK_2))
        }
        self._plain = PLAIN_LOCK.build(prefix)
        self._turns = asyncio.Lock()

    @asynccontextmanager
    async def hold(self, *, wait_s: float) -> AsyncIterator[bytes]:
        """Hold it for the length of an `async with` block, and be given the token that is in its keys.

        TicketsLocked if others hold it for `wait_s`. It can be lost meanwhile, if we are held up for longer than it
        lasts: a step that must not happen then has to look, in the same script, whether two of the keys hold the token.
        """
        wait_until = monotonic() + wait_s
        await self._take_turn(wait_s)
        try:
            token = secrets.token_bytes(TOKEN_BYTES)
            await self._take(token, wait_s, wait_until)
            extension = _Extension(partial(self._extend, token), self._lock_s / 2)
            try:
                yield token
            finally:
                await extension.stop()
                await self._give_back(token)
        finally:
            self._turns.release()

    async def _take_turn(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._turns.acquire()
        except TimeoutError:
            raise TicketsLocked(self._prefix, wait_s) from None

    async def _take(self, token: bytes, wait_s: float, wait_until: float) -> None:
        try:
            taken = await self._taken_until(token, wait_until)
        except NotSent:
            raise
        except BaseException:
            # It may be ours by now, or be about to be.
            await self._give_back(token)
            raise
        if not taken:
            raise TicketsLocked(self._prefix, wait_s)

    async def _taken_until(self, token: bytes, wait_until: float) -> bool:
        for pause_s in backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S):
            if await until_known(partial(self._try, token)) == b"taken":
                return True
            left_s = wait_until - monotonic()
            if left_s <= 0:
                break
            await asyncio.sleep(min(pause_s, left_s))
        return False

    async def _try(self, token: bytes) -> bytes:
        outcome: bytes = await take_fetch_lock(
            self._store, **self._keys, plain=self._plain, token=token, lock_ms=self._lock_ms
        )
        return outcome

    async def _extend(self, token: bytes) -> bool:
        """Whether it is still ours, as far as is known."""
        try:
            outcome = await extend_fetch_lock(self._store, **self._keys, token=token, lock_ms=self._lock_ms)
        except StoreError as error:
            log.warning("lock not extended", extra={"lock": self._plain, "error": str(error)})
            return True
        if outcome == b"lost":
            log.warning("lock lost", extra={"lock": self._plain})
        return bool(outcome == b"extended")

    async def _give_back(self, token: bytes) -> None:
        """If the server cannot be asked, the lock ends by itself; what was done under it was done in time."""
        try:
            await release_fetch_lock(self._store, **self._keys, token=token)
        except StoreError as error:
            log.warning(
                "lock not released", extra={"lock": self._plain, "ends_in_s": self._lock_s, "error": str(error)}
            )


class _Extension:
    """Extends a lock for as long as it is held. A timer at first: most are given back before it goes off."""

    def __init__(self, extend: Callable[[], Awaitable[bool]], every_s: float) -> None:
        self._extend, self._every_s = extend, every_s
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(every_s, self._begin)

    async def stop(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        while True:
            if not await self._extend():
                return
            await asyncio.sleep(self._every_s)
