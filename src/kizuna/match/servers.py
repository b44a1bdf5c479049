"""The servers that matchmaking may be spread over: the main one, one for assignments, one to read tickets from."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from kizuna.errors import StoreError
from kizuna.store.client import Store

if TYPE_CHECKING:
    from kizuna.settings import MatchSettings, StoreSettings

log = logging.getLogger("kizuna.match")

# A replica that does not answer keeps nobody waiting: the primary has everything, too.
_REPLICA_ANSWERS_WITHIN_S = 1.0
_REPLICA_RESTS_FOR_S = 10.0


class Servers:
    """`main` is open already; the others are opened when they are first needed."""

    def __init__(self, main: Store) -> None:
        self.main = main
        self.settings: MatchSettings = main.settings.match
        self.has_other_assignments = bool(self.settings.assignment_url)
        self._others: dict[StoreSettings, Store] = {}
        own, within_s = main.settings.store, min(main.settings.store.timeout_s, _REPLICA_ANSWERS_WITHIN_S)
        self._assignments_at = msgspec.structs.replace(own, url=self.settings.assignment_url)
        self._replica_at = msgspec.structs.replace(own, url=self.settings.replica_url, timeout_s=within_s)
        self._replica_rests_until = 0.0
        self._opening = asyncio.Lock()
        self._closing = AsyncExitStack()

    async def assignments(self) -> Store:
        return await self._other(self._assignments_at) if self.has_other_assignments else self.main

    async def replica(self) -> Store | None:
        """None if there is none, or it did not answer lately."""
        if not self.settings.replica_url or time.monotonic() < self._replica_rests_until:
            return None
        try:
            return await self._other(self._replica_at)
        except StoreError as error:
            self.leave_replica_alone(error)
            return None

    def leave_replica_alone(self, error: StoreError) -> None:
        """For a while: it did not answer."""
        self._replica_rests_until = time.monotonic() + _REPLICA_RESTS_FOR_S
        log.warning("replica left alone", extra={"for_s": _REPLICA_RESTS_FOR_S, "error": str(error)})

    async def aclose(self) -> None:
        await self._closing.aclose()

    async def _other(self, at: StoreSettings) -> Store:
        if at in self._others:
            return self._others[at]
        async with self._opening:
            if at not in self._others:
                store = Store(msgspec.structs.replace(self.main.settings, store=at))
                await store.open()
                self._closing.push_async_callback(partial(store.aclose))
                self._others[at] = store
        return self._others[at]
