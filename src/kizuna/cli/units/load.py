"""`kizuna units call --many`: how quickly a unit answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from kizuna.errors import RequestFailed, RequestTimeout


async def asked_often(ask: Callable[[], Awaitable[object]], times: int, *, parallel: int) -> dict[str, object]:
    """Facts about so many calls. Raises what keeps it from asking at all."""
    took_s: list[float] = []
    counts = {"replies": 0, "errors": 0, "timeouts": 0}
    left = iter(range(times))

    async def ask_on() -> None:
        for _ in left:
            began = time.perf_counter()
            try:
                await ask()
                counts["replies"] += 1
            except RequestFailed:
                counts["errors"] += 1
            except RequestTimeout:
                counts["timeouts"] += 1
                continue
            took_s.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(min(parallel, times)):
            group.create_task(ask_on())
    seconds = time.perf_counter() - began
    return {
        "calls": times,
        **counts,
        "seconds": round(seconds, 3),
        "calls_per_s": round(times / seconds),
        "p50_ms": _quantile_ms(took_s, 0.5),
        "p99_ms": _quantile_ms(took_s, 0.99),
    }


def _quantile_ms(took_s: Sequence[float], share: float) -> float | None:
    """Of those that were answered; None if none was."""
    if not took_s:
        return None
    return round(sorted(took_s)[min(int(len(took_s) * share), len(took_s) - 1)] * 1000, 2)
