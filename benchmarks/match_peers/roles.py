"""What the Python processes do when they are ordered to, and how what players wait for is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any, Protocol


class Player(Protocol):
    """By the Python face."""

    async def create(self) -> str: ...
    async def assignment(self, ticket: str, within_s: float) -> object: ...


class Backend(Protocol):
    """One that is not running yet."""

    async def start(self) -> None: ...


@dataclass
class Tally:
    took_ms: list[float] = field(default_factory=list)
    failures: int = 0
    last_failure: str = ""

    async def count(self, what: Awaitable[object]) -> None:
        began = time.perf_counter()
        try:
            await what
        except Exception as error:
            self.failures += 1
            self.last_failure = f"{type(error).__name__}: {error}"
            # What is refused at once is not to be repeated a hundred thousand times.
            await asyncio.sleep(0.01)
        else:
            self.took_ms.append((time.perf_counter() - began) * 1000)

    def facts(self, seconds: float) -> dict[str, Any]:
        percentiles = quantiles(self.took_ms, n=100) if len(self.took_ms) > 1 else [0.0] * 99
        return {
            "done": len(self.took_ms),
            "seconds": seconds,
            "p50_ms": percentiles[49],
            "p99_ms": percentiles[98],
            "failures": self.failures,
            "last_failure": self.last_failure,
        }


async def create(player: Player, in_flight: int, seconds: float) -> dict[str, Any]:
    """So many callers create one ticket after the other, until the time is up."""
    tally, began = Tally(), time.perf_counter()
    ends_at = began + seconds

    async def caller() -> None:
        while time.perf_counter() < ends_at:
            await tally.count(player.create())

    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return tally.facts(time.perf_counter() - began)


async def play(player: Player, per_second: float, seconds: float, wait_s: float) -> dict[str, Any]:
    """A player comes at each moment of an even stream, whatever became of those before; see load/measuring.go."""
    tally, began, playing = Tally(), time.perf_counter(), []
    for number in range(round(per_second * seconds)):
        if (early_s := began + number / per_second - time.perf_counter()) > 0:
            await asyncio.sleep(early_s)
        playing.append(asyncio.create_task(tally.count(_play_once(player, wait_s))))
    came_s = time.perf_counter() - began
    await asyncio.gather(*playing)
    return tally.facts(came_s)


async def _play_once(player: Player, wait_s: float) -> None:
    await player.assignment(await player.create(), wait_s)


async def run(backend: Backend, tick_ms: int) -> dict[str, Any]:
    """From now on, until the process is ended. How often it ticks is for those who do not know when a ticket is new."""
    await backend.start()
    return {}


async def stand(target: str) -> dict[str, Any]:
    """Answered by a frontend that answers games, too: it takes no orders before."""
    return {"target": target}


async def be_ready(_: object) -> dict[str, Any]:
    return {}


ORDERS: dict[str, dict[str, Callable[..., Awaitable[dict[str, Any]]]]] = {
    "frontend": {"stand": stand},
    "backend": {"stand": be_ready, "run": run},
    "player": {"stand": be_ready, "create": create, "play": play},
}
