"""Looks from time to time how full the server is, and how much is remembered; and makes room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kizuna.memory import keys
from kizuna.memory.counting import sum_of
from kizuna.memory.pressure.measuring import LEVELS, Pressure, measure
from kizuna.memory.pressure.relieving import Relief, Spillable, relieve
from kizuna.metrics import Measure

if TYPE_CHECKING:
    from kizuna.memory.counts import Counts
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots


class PressureWatch:
    """One for each process that remembers: `background.repeat(watch.step, every_s=settings.pressure_every_s, …)`."""

    def __init__(self, roots: Roots, counts: Counts, backup: Spillable | None = None) -> None:
        self.pressure: Pressure | None = None
        """At the last look; None before the first."""
        self._roots, self._counts, self._backup = roots, counts, backup

    async def step(self, store: Store) -> None:
        self.note_pressure(await measure(store, self._roots))
        self._counts.contexts = await sum_of(store, self._roots, "ZCARD", keys.CONTEXTS_EXPIRY)
        self._counts.events = await sum_of(store, self._roots, "XLEN", keys.FEED)
        if self.pressure is not None and self.pressure.level != "calm":
            self.note(await relieve(store, self._roots, self._backup))

    def note(self, relief: Relief) -> None:
        """Count what was done, by the watch or by hand."""
        self.note_pressure(relief.pressure)
        self._counts.shortened += relief.shortened
        self._counts.evicted += relief.removed
        self._counts.spilled += relief.spilled

    def note_pressure(self, pressure: Pressure) -> None:
        self.pressure = pressure
        self._counts.items = pressure.items

    def measures(self) -> Iterator[Measure]:
        """Nothing before the first look."""
        pressure = self.pressure
        if pressure is None:
            return
        text = "How much of what may be used is used: 1 is full."
        yield Measure("gauge", "kizuna_memory_pressure_ratio", text, pressure.ratio)
        text = "What is done about it: 0 nothing, 1 lives are shortened, 2 items are removed."
        yield Measure("gauge", "kizuna_memory_pressure_level", text, LEVELS.index(pressure.level))
        if pressure.root_bytes is not None:
            text = "What items and their indexes use, estimated."
            yield Measure("gauge", "kizuna_memory_root_bytes", text, pressure.root_bytes)
            text = "What they may use."
            yield Measure("gauge", "kizuna_memory_budget_bytes", text, pressure.budget_bytes)
