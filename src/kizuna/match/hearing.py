"""Hearing of changes that the servers announce; and knowing when they do not, so that somebody looks instead."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kizuna.errors import KizunaError, NotificationsOff, PermissionDenied, StoreError

if TYPE_CHECKING:
    from kizuna.store.client import Store

log = logging.getLogger("kizuna.match")

_TRIED_EVERY_S = 5.0


@dataclass(frozen=True)
class _Wanted:
    store: Store
    pattern: str
    on_changes: Callable[[list[bytes]], None]
    kinds: tuple[str, ...]


class Hearing:
    """`on_look` is called whenever something may have been missed, or is not announced any more."""

    def __init__(self, what: str, on_look: Callable[[], None]) -> None:
        self._what, self._on_look = what, on_look
        self._taps = AsyncExitStack()
        self._unheard: dict[str, _Wanted] = {}
        self._troubles: dict[str, KizunaError] = {}
        self._tried_at = 0.0

    @property
    def is_deaf(self) -> bool:
        """Some of it is not announced: it has to be looked for."""
        return bool(self._troubles)

    async def listen(
        self, store: Store, pattern: str, on_changes: Callable[[list[bytes]], None], kinds: Iterable[str]
    ) -> None:
        """From now on. If that is not possible here, it is deaf to it, and tries again when told to."""
        await self._try(_Wanted(store, pattern, on_changes, tuple(kinds)))

    async def try_again(self) -> None:
        """Cheap when there is nothing to try, or it was tried a moment ago."""
        if self._unheard and time.monotonic() - self._tried_at > _TRIED_EVERY_S:
            self._tried_at = time.monotonic()
            for wanted in list(self._unheard.values()):
                await self._try(wanted)

    async def aclose(self) -> None:
        await self._taps.aclose()

    async def _try(self, wanted: _Wanted) -> None:
        tap = wanted.store.events.tap(
            wanted.pattern,
            wanted.on_changes,
            on_look_again=partial(self._hears, wanted.pattern),
            on_trouble=partial(self._is_in_trouble, wanted.pattern),
            kinds=wanted.kinds,
        )
        try:
            await self._taps.enter_async_context(tap)
        except (NotificationsOff, PermissionDenied) as error:
            self._unheard[wanted.pattern] = wanted
            self._is_in_trouble(wanted.pattern, error)
        except StoreError:
            # Whoever tries for the first time is told; later ones have been looking all the time.
            if wanted.pattern not in self._unheard:
                raise
        else:
            if self._unheard.pop(wanted.pattern, None):
                self._hears(wanted.pattern)

    def _hears(self, pattern: str, _: object = None) -> None:
        if self._troubles.pop(pattern, None):
            log.info("%s are announced again", self._what, extra={"pattern": pattern})
        self._on_look()

    def _is_in_trouble(self, pattern: str, error: KizunaError) -> None:
        if pattern not in self._troubles:
            fields = {"pattern": pattern, "error": str(error)}
            log.warning("%s are not announced; they are looked for", self._what, extra=fields)
        self._troubles[pattern] = error
        self._on_look()
