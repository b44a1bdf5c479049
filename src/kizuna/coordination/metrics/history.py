"""Metrics: the newest value of something, and those before it.

    await k.metrics.record("cpu", 0.42)     poppo:metrics:cpu:current    0.42
                                            poppo:metrics:cpu:history    1750338000123-0 value 0.42

Times are the server's. Values are kept for as long as stats are, and no more than `most` of each metric.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from kizuna.coordination.keys import METRIC_CURRENT, METRIC_HISTORY
from kizuna.coordination.roots import roots_of
from kizuna.coordination.stats.histograms import number_of
from kizuna.errors import Undecodable, WrongValue
from kizuna.store.replies import paired
from kizuna.store.scanning import names_of_all
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots

log = logging.getLogger("kizuna.coordination")

MOST = 10_000
"""Values kept of each metric: a day of one every nine seconds."""

record_metric = Script.load(__package__, "record_metric")


class Sample(NamedTuple):
    at_s: float
    """When the server got it, in seconds since the epoch."""
    value: float


class MetricHistory:
    """`k.metrics`."""

    def __init__(self, store: Store, *, most: int = MOST) -> None:
        self._store, self._most = store, most

    async def record(self, name: str, value: float) -> None:
        """Make this the newest value. It is sent once: after OutcomeUnknown it may be there, or not."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise WrongValue(f"metric {name}", repr(value), "a number")
        await record_metric(
            self._store,
            current=self._current(name),
            history=self._history(name),
            value=value,
            most=self._most,
            keep_ms=self._store.settings.kept.stats_s * 1000,
        )

    async def current(self, name: str) -> float | None:
        """The newest value; None if there is none, or it is too old. Undecodable if others wrote what is no number."""
        raw = await self._store.get(self._current(name))
        if raw is None:
            return None
        value = number_of(raw)
        if value is None:
            raise Undecodable("number", f"it is in {self._current(name)}", raw)
        return value

    async def history(
        self,
        name: str,
        since_s: float | None = None,
        until_s: float | None = None,
        *,
        last_s: float | None = None,
        most: int = MOST,
    ) -> list[Sample]:
        """The newest `most` values between two times in seconds since the epoch, or of the last so many seconds by the
        server's clock; oldest first."""
        if last_s is not None:
            since_s = await self.now() - last_s
        first = "-" if since_s is None else f"{max(0, math.floor(since_s * 1000))}"
        last = "+" if until_s is None else f"{max(0, math.floor(until_s * 1000))}"
        entries = await self._store.call("XREVRANGE", self._history(name), last, first, "COUNT", most)
        samples = (_sample(self._history(name), *entry) for entry in reversed(entries))
        return [sample for sample in samples if sample is not None]

    async def names(self) -> list[str]:
        """Every metric there is, in order."""
        found = {names["metric"] async for names in names_of_all(self._store, self._roots, METRIC_CURRENT)}
        found |= {names["metric"] async for names in names_of_all(self._store, self._roots, METRIC_HISTORY)}
        return sorted(found)

    async def now(self) -> float:
        """The server's time."""
        return await self._store.time_s()

    @cached_property
    def _roots(self) -> Roots:
        return roots_of(self._store)

    def _current(self, name: str) -> str:
        return METRIC_CURRENT.build(self._roots.of(name), metric=name)

    def _history(self, name: str) -> str:
        return METRIC_HISTORY.build(self._roots.of(name), metric=name)


def downsample(samples: Sequence[Sample], width: int, first_s: float, last_s: float) -> list[float | None]:
    """The mean of each of `width` stretches of time of equal length; None where there is no value."""
    sums, counts = [0.0] * width, [0] * width
    for at_s, value in samples:
        if first_s <= at_s <= last_s:
            place = min(width - 1, int((at_s - first_s) / ((last_s - first_s) or 1) * width))
            sums[place] += value
            counts[place] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def _sample(key: str, raw_id: bytes, fields: list[bytes]) -> Sample | None:
    value = number_of(paired(fields).get(b"value", b""))
    if value is None:
        log.warning("entry without a value", extra={"key": key, "entry": raw_id.decode()})
        return None
    return Sample(int(raw_id.partition(b"-")[0]) / 1000, value)
