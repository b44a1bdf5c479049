"""What all units of a process share: reading, looking for requests, keeping claims, counting, being there."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kizuna.errors import Unreachable
from kizuna.units.announcing import Announcing
from kizuna.units.counts import Counts, measures_of
from kizuna.units.ears import Ear, Ears
from kizuna.units.hearing import Hearing, Silence
from kizuna.units.paths import lowered
from kizuna.units.reading import Reading
from kizuna.units.requests import Requests
from kizuna.units.standstill import Standstill
from kizuna.units.sweeping import Sweeping
from kizuna.units.writing import Writing

if TYPE_CHECKING:
    from kizuna.coordination.background import Background, Repetition
    from kizuna.metrics import Measure
    from kizuna.store.client import Store
    from kizuna.units.fleet import KnownUnit
    from kizuna.units.listening import Listening
    from kizuna.units.serving import Serving


class Units:
    """`k.units`."""

    def __init__(self, store: Store, background: Background, process: str) -> None:
        self.store, self.settings, self.process = store, store.settings.units, process
        self.root = lowered(store.settings.roots.units)
        self.writing = Writing(store)
        self.reading = Reading(store, self.writing)
        self.announcing = Announcing(self)
        self.silence = Silence()
        self.ears = Ears(store, self.silence, self.root)
        self._background = background
        self._sweeping = Sweeping(store, self.root)
        self._counts: dict[str, Counts] = {}
        self._requests: dict[str, Requests] = {}
        self._tokens = itertools.count(1)
        self._renewal: Repetition | None = None
        self._starting = asyncio.Lock()
        self.is_closed = False
        self._closed = asyncio.Event()
        self.standstill = Standstill(self.settings.claim_s / 2)
        self.listenings: set[Listening] = set()
        """Those that are open."""

    def measures(self) -> Iterable[Measure]:
        """For `Metrics`."""
        return measures_of(self._counts, self.announcing.polling())

    async def fleet(self) -> list[KnownUnit]:
        """Every unit that is known now, in any process and by any key, in the order of their names."""
        from kizuna.units.fleet import look_at_all

        return await look_at_all(self.store, self.root)

    def counts_of(self, unit: str) -> Counts:
        return self._counts.setdefault(unit, Counts())

    def requests_of(self, unit: str) -> Requests:
        """One for each name: programs make a unit wherever they need one, and all of a name wait together."""
        if unit not in self._requests:
            self._requests[unit] = Requests(self, unit)
        return self._requests[unit]

    def next_token(self) -> str:
        """For the claims of one server: no other has it, in this process or another."""
        return f"{self.process}.{next(self._tokens)}"

    @asynccontextmanager
    async def serving(self, unit: str, serving: Serving) -> AsyncIterator[None]:
        """Hear and serve; entered when every request that is there, or comes, is heard of."""
        await self._keep_claims()
        self.standstill.begin()
        ear = self._ear_of(serving)
        self._sweeping.servings[serving] = None
        try:
            serving.is_open = True
            await ear.open()
            await self._sweeping.sweep()
            with self.announcing.announced(unit, "serves", ear):
                yield
        finally:
            serving.is_open = False
            try:
                await ear.aclose()
                await serving.drained()
            finally:
                await serving.aclose()
                # Not before: until then its claims are renewed.
                self._sweeping.servings.pop(serving)

    def sweep_soon(self) -> None:
        """Look for requests: some may not have been heard of."""
        if not self._sweeping.is_due:
            for serving in self._sweeping.servings:
                serving.counts.resyncs += 1
        self._sweeping.sweep_soon()

    async def until_closed(self) -> None:
        """For those who would wait for ever. Raises Unreachable then."""
        await self._closed.wait()
        raise Unreachable("the units were closed", "this process", "connect again")

    async def aclose(self) -> None:
        self.is_closed = True
        self._closed.set()
        self.standstill.end()
        for listening in self.listenings:
            listening.close()
        await self.announcing.aclose()
        for requests in self._requests.values():
            await requests.aclose()
        if self._renewal is not None:
            self._renewal.stop()
        await self._sweeping.aclose()

    # -- inside -----------------------------------------------------------------------------------------

    def _ear_of(self, serving: Serving) -> Ear | Hearing:
        if serving.address is None:
            return Hearing(self.store, self.silence, serving.pattern, serving.heard, self.sweep_soon)
        return self.ears.ear("req", serving.unit, serving.pattern, serving.heard, self.sweep_soon)

    async def _keep_claims(self) -> None:
        async with self._starting:
            if self._renewal is None:
                every_s = self.settings.claim_s / 3
                self._renewal = await self._background.repeat(self._renew_claims, every_s=every_s, name="unit claims")

    async def _renew_claims(self, store: Store) -> None:
        """In the background: a handler that holds up the loop of the program still holds its claim."""
        due = time.monotonic() - self.settings.claim_s / 3
        renewing = [
            serving.claims.renew(execution, store)
            for serving in list(self._sweeping.servings)
            for execution in list(serving.running.values())
            if not execution.is_settled and 0 < execution.claimed_at <= due
        ]
        await asyncio.gather(*renewing)
