"""What time it is, behind one small protocol, so that tests can move it.

Deadlines on the wire use the event loop's monotonic time and are no business of this clock; times that are
written to the server come from the server (`TIME` inside a script). What is left is here.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


def milliseconds(seconds: float) -> int:
    """As the server takes them: whole, and never 0, which it would refuse."""
    return max(1, round(seconds * 1000))


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""

    async def sleep(self, seconds: float) -> None:
        """Return once that much time has passed on this clock."""


class SystemClock:
    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
