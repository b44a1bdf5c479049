"""How much to ask of the server at a time, so that nobody else waits for us."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

FEWEST, MOST = 100, 1_000
"""Keys of one SCAN: the server looks at 1,000 in about half a millisecond."""
ROWS = 200
"""Keys of one script call: about a millisecond."""
_QUICK_S, _SLOW_S = 0.002, 0.005
_CROWDED_S = 0.01
_LONGEST_REST_S = 0.1


class Pace:
    """Learns from each answer: small steps and rests while the server, or the way to it, is slow."""

    def __init__(self) -> None:
        self.count = FEWEST
        """How many keys the next SCAN may look at."""
        self.rest_s = 0.0
        """How long to leave the server to others before the next step."""

    def learn(self, took_s: float) -> None:
        if took_s > _SLOW_S:
            self.count = max(self.count // 2, FEWEST)
        elif took_s < _QUICK_S:
            self.count = min(self.count * 2, MOST)
        # As long as we were at it, so that at least half of the time is left to others.
        self.rest_s = min(took_s, _LONGEST_REST_S) if took_s > _CROWDED_S else 0.0

    async def keep(self, answer: Awaitable[T]) -> T:
        """Wait for an answer, learn from the time it took, and rest if that is due."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        reply = await answer
        self.learn(loop.time() - began)
        if self.rest_s:
            await asyncio.sleep(self.rest_s)
        return reply
