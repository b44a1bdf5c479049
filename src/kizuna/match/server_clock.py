"""What time it is at the server, asked once in a while: whoever makes a ticket says when, by a clock that all share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kizuna.store.client import Store

_ASKED_EVERY_S = 60.0


class ServerClock:
    """Ours, set by the server's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ahead_ns = 0
        self._asked_at = -_ASKED_EVERY_S

    async def now_ns(self) -> int:
        """In nanoseconds since the epoch; off by half of what an answer takes, and by what clocks drift in a minute."""
        if time.monotonic() - self._asked_at > _ASKED_EVERY_S:
            await self._ask()
        return time.time_ns() + self._ahead_ns

    async def _ask(self) -> None:
        before_ns = time.time_ns()
        there_ns = round(await self._store.time_s() * 1e9)
        self._ahead_ns = there_ns - (before_ns + time.time_ns()) // 2
        self._asked_at = time.monotonic()
