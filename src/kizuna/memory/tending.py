"""What every process that remembers does beside: sweeps, tells shards of each other, looks how full the server is."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from kizuna.memory.relaying import relay
from kizuna.memory.server_keeper import ServerKeeper
from kizuna.memory.settling import settle_whole
from kizuna.memory.sweeping import Sweeper, end_due

if TYPE_CHECKING:
    from kizuna.coordination.background import Background, Repetition
    from kizuna.memory.backup.fallback import FallbackKeeper
    from kizuna.memory.care import Care
    from kizuna.store.client import Store


# Between some hundreds that are settled: nobody waits for it, and others should not wait for us.
_PAUSE_S = 0.05


class Tending:
    """Begun by whoever writes or listens first; in the background, so that a busy program tends as well."""

    def __init__(
        self, server: ServerKeeper, background: Background, care: Care, fallback: FallbackKeeper | None
    ) -> None:
        self._server, self._background, self._care, self._fallback = server, background, care, fallback
        self._sweepers = [Sweeper(shard) for shard in server.shards]
        # In the background's thread everything has its own: the store, and whoever uses it.
        self._server_behind: ServerKeeper | None = None
        self._sweepers_behind = [Sweeper(shard) for shard in server.shards]
        self._repetitions: list[Repetition] = []
        self._starting = asyncio.Lock()
        self.has_begun = False

    async def begin(self) -> None:
        """Harmless when repeated. While the server is away, it is left for later."""
        if self.has_begun:
            return
        async with self._starting:
            if self.has_begun:
                return
            if self._fallback is None:
                await self._repeat()
            else:
                await self._fallback.unless_away(self._repeat)

    async def sweep(self) -> int:
        """What is done in the background all the time, now. How many ended."""
        return await self._sweep(self._server, self._sweepers)

    async def end_due(self) -> None:
        """What a sweep begins with, and nothing of what others wrote."""
        for shard in self._server.shards:
            await end_due(self._server, shard)

    def end(self) -> None:
        for repetition in self._repetitions:
            repetition.stop()

    # -- inside -------------------------------------------------------------------------------------------

    async def _repeat(self) -> None:
        settings = self._server.store.settings.memory
        repeat = self._background.repeat
        self._repetitions = [
            await repeat(self._sweep_behind, every_s=settings.sweep_every_s, name="memory sweep"),
            await repeat(self._care.watch.step, every_s=settings.pressure_every_s, name="memory pressure"),
        ]
        self.has_begun = True

    async def _sweep_behind(self, store: Store) -> None:
        if self._server_behind is None:
            self._server_behind = ServerKeeper(store, None)
        await self._sweep(self._server_behind, self._sweepers_behind)

    async def _settle_large(self, server: ServerKeeper) -> None:
        """What lists have come across, whoever made them."""
        unsettled = self._server.unsettled
        while unsettled:
            index = unsettled[0]
            await settle_whole(server, index, pause_s=_PAUSE_S)
            # Not before: until then, nobody need look at it again. Another sweep may have been quicker.
            with suppress(ValueError):
                unsettled.remove(index)

    async def _sweep(self, server: ServerKeeper, sweepers: list[Sweeper]) -> int:
        swept = [await sweeper.sweep(server) for sweeper in sweepers]
        await self._settle_large(server)
        await relay(server)
        ended = sum(one.ended for one in swept)
        self._care.counts.observe_sweep(ended, max(one.late_ms for one in swept), sum(one.settled for one in swept))
        return ended
