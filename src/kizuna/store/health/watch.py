"""The latest look at the server, shared by all who ask how it is.

Probes and scrapes come from outside, as often as they like; the server is asked at most once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kizuna.errors import KizunaError, StoreError
from kizuna.metrics import Measure
from kizuna.store.health.info import Info, ask_info, reasons_not_ready
from kizuna.store.health.measures import events_measures, server_measures, store_measures

if TYPE_CHECKING:
    from kizuna.store.client import Store

FRESH_S = 1.0
# Orchestrators give a probe one second: an answer that says what is wrong should come within it.
ANSWER_WITHIN_S = 0.8


@dataclass(frozen=True)
class Look:
    infos: dict[str, Info] = field(default_factory=dict)
    """INFO of each primary that answered, by its address."""
    error: str = "nobody has looked yet"


class ServerWatch:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._look = Look()
        self._looked_at = -FRESH_S
        self._turn = asyncio.Lock()

    async def look(self) -> Look:
        """What the server said within the last second. Never raises an error of ours: the look carries it."""
        # One asks, and those who came meanwhile get the same answer, also if it is an error.
        async with self._turn:
            loop = asyncio.get_running_loop()
            if loop.time() - self._looked_at >= FRESH_S:
                self._look = await self._ask()
                self._looked_at = loop.time()
            return self._look

    async def problems(self) -> list[str]:
        """Why this process cannot do its work with the server now; empty if it can."""
        look = await self.look()
        reasons = ((server, reasons_not_ready(info)) for server, info in look.infos.items())
        of_server = [f"{reason} ({server})" for server, found in reasons for reason in found]
        return [*filter(None, [look.error]), *of_server, *self._deafness()]

    def measures(self) -> Iterator[Measure]:
        """Of the latest look, and of our own connections as they are."""
        answered = 0 if self._look.error else 1
        yield Measure("gauge", "kizuna_server_up", "1 if every primary answers.", answered)
        yield from server_measures(self._look.infos)
        yield from store_measures(self._store)
        yield from events_measures(self._store.events)

    def _deafness(self) -> list[str]:
        events, age_s = self._store.settings.events, self._store.events.seconds_since_canary
        # One proof may fail and the next succeed, and nobody need be woken for that.
        if age_s is None or age_s < events.canary_every_s + 2 * events.canary_timeout_s:
            return []
        return [f"no proof for {age_s:.0f}s that changes are heard of"]

    async def _ask(self) -> Look:
        try:
            told = await ask_info(self._store, timeout_s=ANSWER_WITHIN_S)
        except KizunaError as error:
            return Look(error=str(error))
        errors = [str(error) for error in told.values() if isinstance(error, StoreError)]
        infos = {server: info for server, info in told.items() if not isinstance(info, StoreError)}
        return Look(infos, error="; ".join(errors))
