"""Which keys have changed since somebody asked: by notifications; or, where there are none, by looking at all of them
every `units.poll_every_s`.

Unlike `units.hearing`, it calls nobody: whoever watches takes what has gathered when it is ready for it, and polls only
while it waits. And it hears of ends as well, by a second tap on the same pattern.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from kizuna.errors import KizunaError, NotificationsOff, PermissionDenied
from kizuna.units.state.changes import NEVER

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.events import LookAgain
    from kizuna.units.state.selection import Selection

log = logging.getLogger("kizuna.units")

# Not at each canary: every attempt is refused by the server in question, and logged there.
_CANARIES_BETWEEN_ATTEMPTS = 3
# Whatever can give a string another value, or take it away; and what is about its end.
_CHANGES = (
    "set", "setrange", "append", "incrby", "incrbyfloat", "del", "rename_from", "rename_to", "copy_to", "restore",
    "move_from", "move_to",
)  # fmt: skip
_ENDS = ("expire", "expired")


class StateHearing:
    """Gathers what is heard, until it is taken: however often a key changed, it is there once."""

    def __init__(self, store: Store, selection: Selection) -> None:
        self.heard: dict[bytes, bool] = {}
        """Keys that have changed; and whether the last that was heard is about the end: if gone, it has expired."""
        self.must_search = True
        """Changes may have been missed, so everything has to be looked at."""
        self._store, self._selection = store, selection
        events = store.settings.events
        self._try_every_s = events.canary_every_s * _CANARIES_BETWEEN_ATTEMPTS
        self._most = events.buffer
        self._clock = asyncio.get_running_loop().time
        self._something = asyncio.Event()
        self._subscribed = AsyncExitStack()
        self._troubles: dict[tuple[str, ...], KizunaError] = {}
        """Why these kinds of change are not heard; both share one subscription."""
        self._poll_at = self._try_at = NEVER
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """There is nothing more to hear."""
        return self._closed or self._store.events.is_closed

    @property
    def polling(self) -> KizunaError | None:
        """Why everything is looked at again and again; None while changes are heard."""
        return next(iter(self._troubles.values()), None)

    async def open(self) -> None:
        """Return once every change from now on is heard, or found by looking."""
        async with AsyncExitStack() as subscribing:
            try:
                await self._tap(subscribing, _CHANGES, of_ends=False)
                await self._tap(subscribing, _ENDS, of_ends=True)
            except (NotificationsOff, PermissionDenied) as error:
                self._try_at = self._clock() + self._try_every_s
                self._trouble(_CHANGES, error)
            else:
                self._subscribed, self._try_at = subscribing.pop_all(), NEVER
                self._troubles.clear()
                self._must_search()

    async def aclose(self) -> None:
        self._closed = True
        await self._subscribed.aclose()

    async def wait(self, until: float) -> None:
        """Until something is heard, or that time has come; or until it is time to look at everything."""
        await self._wait_until(min(until, self._poll_at))
        if self._clock() >= self._poll_at:
            self.must_search = True
            await self._try_to_hear()

    def searched(self, took_s: float) -> None:
        """Everything was looked for, and that took so long: half of the time, at least, is left to others."""
        pause_s = max(self._store.settings.units.poll_every_s, took_s)
        self._poll_at = self._clock() + pause_s if self._troubles else NEVER

    # -- inside -----------------------------------------------------------------------------------------

    async def _tap(self, subscribing: AsyncExitStack, kinds: tuple[str, ...], *, of_ends: bool) -> None:
        tap = self._store.events.tap(
            self._selection.glob,
            partial(self._hear, of_ends=of_ends),
            on_look_again=partial(self._look_again, kinds),
            on_trouble=partial(self._trouble, kinds),
            on_close=self._something.set,
            kinds=kinds,
        )
        await subscribing.enter_async_context(tap)

    async def _wait_until(self, when: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(None if when == NEVER else when):
                await self._something.wait()
        # What is heard from here on is there for the next one who waits.
        self._something.clear()

    async def _try_to_hear(self) -> None:
        if self._clock() < self._try_at:
            return
        self._try_at = self._clock() + self._try_every_s
        try:
            await self.open()
        except KizunaError as error:
            log.debug("not subscribed", extra={"pattern": self._selection.glob, "error": str(error)})

    def _hear(self, keys: list[bytes], *, of_ends: bool) -> None:
        concerned = dict.fromkeys(filter(self._selection.may_have, keys), of_ends)
        if not concerned:
            return
        self.heard.update(concerned)
        self._something.set()
        if len(self.heard) > self._most:
            self.heard.clear()
            self._must_search()

    def _look_again(self, kinds: tuple[str, ...], again: LookAgain) -> None:
        log.debug("looking again", extra={"pattern": self._selection.glob, "reason": again.reason})
        self._troubles.pop(kinds, None)
        self._must_search()

    def _trouble(self, kinds: tuple[str, ...], error: KizunaError) -> None:
        if not self._troubles:
            log.warning("polling", extra={"pattern": self._selection.glob, "error": str(error)})
        self._troubles[kinds] = error
        self._must_search()

    def _must_search(self) -> None:
        self.must_search = True
        self._something.set()
