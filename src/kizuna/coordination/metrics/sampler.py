"""A service that records how this process and its machine are doing."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kizuna.errors import StoreError

if TYPE_CHECKING:
    from kizuna.coordination.metrics.history import MetricHistory

log = logging.getLogger("kizuna.coordination")


class Sampler:
    """Records, every `every_s` seconds:

    cpu     the share of one core that this process used since the time before; with threads it may be above 1
    memory  what this process has in memory, in bytes
    load    the load average of the machine over the last minute

    With a `prefix`, `web-1` say, the names are `web-1.cpu` and so on, so that several processes do not mix. A value
    that cannot be recorded is logged, and the next one tried.
    """

    def __init__(self, metrics: MetricHistory, *, every_s: float = 10.0, prefix: str = "") -> None:
        self._metrics, self._every_s = metrics, every_s
        self._prefix = f"{prefix}." if prefix else ""
        self._cpu = _CpuShare()

    async def run(self, started: asyncio.Event) -> None:
        await self.sample()
        started.set()
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.sample()
            except StoreError as error:
                log.warning("sample not recorded", extra={"error": str(error)})

    async def sample(self) -> None:
        values = {"cpu": self._cpu.since_last(), "memory": memory_bytes(), "load": os.getloadavg()[0]}
        await asyncio.gather(*(self._metrics.record(self._prefix + name, value) for name, value in values.items()))


class _CpuShare:
    def __init__(self) -> None:
        self._at, self._used = time.monotonic(), time.process_time()

    def since_last(self) -> float:
        at, used = time.monotonic(), time.process_time()
        share = (used - self._used) / max(at - self._at, 0.001)
        self._at, self._used = at, used
        return round(share, 4)


def memory_bytes() -> int:
    """Resident now; where there is no /proc, the most it ever was."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
