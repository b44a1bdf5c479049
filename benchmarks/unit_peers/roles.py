"""What the processes of all peers do when they are ordered to, and how a round of calls is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

DATA = b"d" * 100
NAME = "echo"
"""Of who is called; whatever the peer calls that."""
REPLY_WITHIN_S = 10
AFTER_A_FAILURE_S = 0.01
"""A call that is refused at once is not to be repeated a hundred thousand times."""

Call = Callable[[bytes], Awaitable[bytes]]


@dataclass
class Tally:
    latencies_ms: list[float] = field(default_factory=list)
    failures: int = 0
    last_failure: str = ""

    async def count(self, call: Call) -> None:
        began = time.perf_counter()
        try:
            reply = await call(DATA)
        except Exception as error:
            await self._fail(f"{type(error).__name__}: {error}")
        else:
            self.latencies_ms.append((time.perf_counter() - began) * 1000)
            if reply != DATA:
                await self._fail(f"the reply was {reply!r}")

    def facts(self) -> dict[str, Any]:
        percentiles = quantiles(self.latencies_ms, n=100) if len(self.latencies_ms) > 1 else [0.0] * 99
        return {
            "calls": len(self.latencies_ms),
            "p50_ms": percentiles[49],
            "p99_ms": percentiles[98],
            "failures": self.failures,
            "last_failure": self.last_failure,
        }

    async def _fail(self, why: str) -> None:
        self.failures += 1
        self.last_failure = " ".join(why.split())
        await asyncio.sleep(AFTER_A_FAILURE_S)


async def call_together(call: Call, in_flight: int, seconds: float) -> dict[str, Any]:
    """So many callers, each of which waits for its reply before it calls again, until the time is up."""
    tally, began = Tally(), time.perf_counter()
    ends_at = began + seconds

    async def caller() -> None:
        while time.perf_counter() < ends_at:
            await tally.count(call)

    await asyncio.gather(*(caller() for _ in range(in_flight)))
    # Until the last reply, so that a slow peer is not credited with what it had not done when the time was up.
    return {**tally.facts(), "seconds": time.perf_counter() - began}


async def call_now_and_then(call: Call, every_s: float, seconds: float) -> dict[str, Any]:
    tally, began = Tally(), time.perf_counter()
    for number in range(round(seconds / every_s)):
        await asyncio.sleep(began + number * every_s - time.perf_counter())
        await tally.count(call)
    await asyncio.sleep(began + seconds - time.perf_counter())
    return tally.facts()


async def stand(_: object) -> dict[str, Any]:
    """Answered by a responder that answers calls, too: it takes no orders before."""
    return {}


ORDERS_OF_REQUESTERS = {"call_together": call_together, "call_now_and_then": call_now_and_then}
ORDERS_OF_RESPONDERS = {"stand": stand}
