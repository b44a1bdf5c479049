"""Hearing of changes below one pattern; or, where the server does not announce them, looking again and again.

Whoever hears has two functions: one is called with the keys that were set, and one when the keys themselves have to be
looked at, since changes may have been missed. Without announcements, only the second is called, every
`units.poll_every_s`; that is slower, and misses nothing either. (State is taken by whoever watches it when that one is
ready, and not told by calling; so it has a hearing of its own, in `state`.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from kizuna.errors import KizunaError, NotificationsOff, PermissionDenied
from kizuna.store.events import LookAgain

if TYPE_CHECKING:
    from kizuna.store.client import Store

log = logging.getLogger("kizuna.units")

# Not sooner: each attempt is refused by the server in question, and logged there.
_TRY_AGAIN_S = 10.0


class Silence:
    """What one was told about the server, that it announces nothing, holds for all: there may be a thousand of them."""

    def __init__(self) -> None:
        self._error: NotificationsOff | None = None
        self._until = 0.0

    def begin(self, error: NotificationsOff) -> None:
        self._error, self._until = error, asyncio.get_running_loop().time() + _TRY_AGAIN_S

    def end(self) -> None:
        self._error = None

    def now(self) -> NotificationsOff | None:
        """None if it is worth an attempt."""
        return self._error if asyncio.get_running_loop().time() < self._until else None


class Hearing:
    """`polling` says why, while it has to look; None while it hears. `silence` is shared by all of a process."""

    def __init__(
        self,
        store: Store,
        silence: Silence,
        pattern: str,
        on_set: Callable[[list[bytes]], None],
        on_look: Callable[[], None],
    ) -> None:
        self.pattern = pattern
        self.polling: KizunaError | None = None
        self._store, self._silence, self._on_set, self._on_look = store, silence, on_set, on_look
        self._opening = asyncio.Lock()
        self._subscribed = AsyncExitStack()
        self._is_subscribed = False
        self._poller: asyncio.Task[None] | None = None
        self.is_open = False

    async def open(self) -> None:
        """Return when every change from now on is heard, or found by looking. Harmless when repeated."""
        async with self._opening:
            if not self.is_open:
                await self._subscribe()
                self.is_open = True

    async def aclose(self) -> None:
        async with self._opening:
            self.is_open = False
            if self._poller is not None:
                self._poller.cancel()
                await asyncio.wait([self._poller])
            await self._subscribed.aclose()

    # -- inside -----------------------------------------------------------------------------------------

    async def _subscribe(self) -> None:
        if (silence := self._silence.now()) is not None:
            self._poll(silence)
            return
        tap = self._store.events.tap(self.pattern, self._on_set, on_look_again=self._look_again, on_trouble=self._poll)
        try:
            await self._subscribed.enter_async_context(tap)
        except PermissionDenied as error:
            self._poll(error)
        except NotificationsOff as error:
            self._silence.begin(error)
            self._poll(error)
        else:
            self._silence.end()
            self._is_subscribed = True
            if self.polling is not None:
                self._look_again(LookAgain("it is heard from now on"))

    def _look_again(self, again: LookAgain) -> None:
        log.debug("looking again", extra={"pattern": self.pattern, "reason": again.reason})
        self.polling = None
        self._on_look()

    def _poll(self, error: KizunaError) -> None:
        if self.polling is None:
            log.warning("polling", extra={"pattern": self.pattern, "error": str(error)})
        self.polling = error
        if self._poller is None or self._poller.done():
            self._poller = asyncio.get_running_loop().create_task(self._keep_polling(), name="kizuna units poll")

    async def _keep_polling(self) -> None:
        loop = asyncio.get_running_loop()
        every_s, try_at = self._store.settings.units.poll_every_s, loop.time() + _TRY_AGAIN_S
        while self.polling is not None:
            self._on_look()
            # All at the same time, so that one look is enough for all.
            await asyncio.sleep(every_s - loop.time() % every_s)
            # One that was subscribed is told by the store when it hears again.
            if not self._is_subscribed and loop.time() >= try_at and self._silence.now() is None:
                try_at = loop.time() + _TRY_AGAIN_S
                await self._try_to_subscribe()

    async def _try_to_subscribe(self) -> None:
        try:
            await self._subscribe()
        except KizunaError as error:
            log.debug("not subscribed", extra={"pattern": self.pattern, "error": str(error)})
