"""Whether the program stood still for a while: then what it hears now may be long past.

A request that is announced is claimed without a look whether it was answered, since it is new. After a standstill that
was longer than a claim lasts, somebody else may have claimed and answered it, and the claim have ended.
"""

from __future__ import annotations

import asyncio
import time


class Standstill:
    """Looks at the clock again and again; `within_s` is what is taken for no standstill."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._looked_at = time.monotonic()
        self._over_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Harmless when repeated."""
        if self._timer is None:
            self._look()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def is_recent(self) -> bool:
        now = time.monotonic()
        return now < self._over_at or now - self._looked_at > self._within_s

    def _look(self) -> None:
        now = time.monotonic()
        if self._timer is not None and now - self._looked_at > self._within_s:
            # What came meanwhile is read piece by piece.
            self._over_at = now + self._within_s
        self._looked_at = now
        self._timer = asyncio.get_running_loop().call_later(self._within_s / 2, self._look)
