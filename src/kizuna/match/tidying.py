"""Takes out of the index what ended by its time while nobody matched or asked: some at a time, as chance finds them.

Backends and queries do that with all they see. This is for frontends, which may be all that runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kizuna.errors import KizunaError
from kizuna.match.xids import is_old

if TYPE_CHECKING:
    from kizuna.match.shard import Shard

log = logging.getLogger("kizuna.match")

_LOOKED_AT = 100
# Where so many of them had ended, there are more: as the server itself does with keys that expire.
_MANY = 25


class Tidying:
    """A Service."""

    def __init__(self, shards: Sequence[Shard], *, every_s: float = 10.0) -> None:
        self._shards, self._every_s = shards, every_s

    async def run(self, started: asyncio.Event) -> None:
        started.set()
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.tidy()
            except KizunaError as error:
                log.warning("ended tickets stay in the index", extra={"error": str(error)})

    async def tidy(self) -> int:
        """How many were taken out. It goes on for as long as it finds many."""
        return sum([await self._tidy(shard) for shard in self._shards])

    async def _tidy(self, shard: Shard) -> int:
        total = 0
        while True:
            old = list(filter(is_old, await shard.some(_LOOKED_AT)))
            # Most often nobody has ended, and then nobody has to wait for anybody's lock.
            ended = await shard.deindex(await shard.without_ticket(old), only_ended=True)
            total += ended
            if ended < _MANY:
                return total
