"""What keeps memory well: is everything exact, is there room, what was done so far, how is it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kizuna.memory.counting_keeper import CountingKeeper
from kizuna.memory.counts import Counts, measures_of
from kizuna.memory.pressure import Pressure, PressureWatch, Relief, Spillable, measure, relieve

if TYPE_CHECKING:
    from kizuna.memory.health import MemoryHealth
    from kizuna.memory.keepers import Keeper
    from kizuna.memory.verifying import Report
    from kizuna.metrics import Measure, Source
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots


class Care:
    """One for each process. `watch.step` is to be repeated in the background of those who remember."""

    def __init__(
        self,
        store: Store,
        roots: Roots,
        backup: Spillable | None = None,
        backup_measures: Source | None = None,
    ) -> None:
        self.counts = Counts()
        self.watch = PressureWatch(roots, self.counts, backup)
        self._store, self._roots, self._backup = store, roots, backup
        self._backup_measures = backup_measures

    def counted(self, keeper: Keeper) -> Keeper:
        """The same keeper, and what is asked of it is counted."""
        return CountingKeeper(keeper, self.counts)

    async def verify(self, repair: bool = False) -> Report:
        """Whether all indexes are exact, or what is off; see `verifying.verify`."""
        from kizuna.memory.verifying import verify

        return await verify(self._store, self._roots, repair)

    async def pressure(self) -> Pressure:
        pressure = await measure(self._store, self._roots)
        self.watch.note_pressure(pressure)
        return pressure

    async def relieve(self) -> Relief:
        """Make room now, if that is needed; see `pressure.relieve`."""
        relief = await relieve(self._store, self._roots, self._backup)
        self.watch.note(relief)
        return relief

    async def health(self) -> MemoryHealth:
        """Never raises an error of ours: that the server cannot be asked is the answer."""
        from kizuna.memory.health import check_memory

        return await check_memory(self._store, self._roots, self.counts, self._of_backup())

    def measures(self) -> Iterable[Measure]:
        """For `Metrics`: what is known already, nothing is asked."""
        return (*measures_of(self.counts), *self.watch.measures(), *self._of_backup())

    def _of_backup(self) -> Iterable[Measure]:
        return () if self._backup_measures is None else self._backup_measures()
