"""Finding the requests that are there: after a start, a reconnect, and again and again where nothing is announced.

One look at all keys serves all servers of the process, however many asked for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from kizuna.errors import KizunaError, Unreachable
from kizuna.store.scanning import Scan
from kizuna.units.keys import REQUEST
from kizuna.units.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kizuna.store.client import Store

log = logging.getLogger("kizuna.units")

_AGAIN_AFTER_S = 0.2


class Sweeping:
    def __init__(self, store: Store, root: str) -> None:
        self.servings: dict[Serving, None] = {}
        """All who want to know, in the order in which they came."""
        self._store = store
        self._glob = REQUEST.glob(root)
        self._wanted: asyncio.Future[None] | None = None
        """Done when a sweep is that began after it was asked for."""
        self._task: asyncio.Task[None] | None = None

    @property
    def is_due(self) -> bool:
        """A sweep is about to begin."""
        return self._wanted is not None

    async def sweep(self) -> None:
        """Return when every request that is there now is served or known to be. Waits for a server that is away."""
        await asyncio.shield(self.sweep_soon())

    def sweep_soon(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if self._wanted is None:
            self._wanted = loop.create_future()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._keep_sweeping(), name="kizuna units sweep")
        return self._wanted

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._wanted is not None:
            _give_up(self._wanted)

    # -- inside -----------------------------------------------------------------------------------------

    async def _keep_sweeping(self) -> None:
        while self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            try:
                await self._sweep_until_done()
            except asyncio.CancelledError:
                _give_up(wanted)
                raise
            if not wanted.done():
                wanted.set_result(None)

    async def _sweep_until_done(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            again_at = loop.time() + _AGAIN_AFTER_S
            try:
                return await self._sweep_once()
            except KizunaError as error:
                log.warning("requests not looked for", extra={"error": str(error)})
            # From one beginning to the next: it may have waited for a server that is back by now.
            await asyncio.sleep(again_at - loop.time())

    async def _sweep_once(self) -> None:
        async for keys in Scan(self._store, [self._glob], type="string"):
            for serving, concerned in self._who_serves(keys):
                await serving.found(concerned)

    def _who_serves(self, keys: Iterable[bytes]) -> Iterable[tuple[Serving, list[bytes]]]:
        concerned: dict[Serving, list[bytes]] = defaultdict(list)
        # By the address, as far as that is all there is to the pattern: there may be a thousand of them.
        by_address: dict[bytes, list[Serving]] = defaultdict(list)
        others = []
        for serving in self.servings:
            if serving.address is None:
                others.append(serving)
            else:
                by_address[serving.address].append(serving)
        for key in keys:
            address = key.rpartition(b"/")[2].partition(b".")[0]
            for serving in (*by_address.get(address, ()), *(other for other in others if other.matches(key))):
                concerned[serving].append(key)
        return concerned.items()


def _give_up(wanted: asyncio.Future[None]) -> None:
    if not wanted.done():
        wanted.set_exception(Unreachable("the units were closed", "this process", "connect again"))
        wanted.exception()  # where nobody waits, it is no news
