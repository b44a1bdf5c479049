"""What a process counts, in Prometheus' words.

Whoever counts keeps plain integers and hands over a function that reads them: it is called at a scrape and at
no other time, so counting costs nothing on the way of a command. prometheus_client is imported here alone, when
the first page is asked for.
"""

from __future__ import annotations

import math
import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, Literal, cast

from kizuna._version import __version__
from kizuna.errors import WrongValue

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry


LATENCY_BOUNDS_S = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""From what one turn on the same machine takes to longer than anybody waits."""


class Histogram:
    """How many values there were below each of a few bounds, for as long as the process lives.

    Few and coarse, for Prometheus: what processes write to the server to be added up there is in coordination/stats.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Of the values up to each bound and above the one before; the last, of those above all bounds."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """On the way of every message: two additions, and nothing is checked."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, q: float) -> float:
        """About the value that a share `q` of all is not above, as if those between two bounds were evenly spread;
        the last bound for all that is above it. nan if there is nothing."""
        if not 0 <= q <= 1:
            raise WrongValue("a quantile", f"{q:g}", "a number from 0 to 1")
        rank, below = q * self.count, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and rank <= count:
                return min(bound, below + (bound - below) * rank / count)
            rank, below = rank - count, bound
        return below if self.counts[-1] else math.nan


@dataclass(frozen=True)
class Measure:
    """One number, or one histogram. The name is in base units (bytes, seconds); that of a counter ends in `_total`."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    value: float | Histogram
    labels: Mapping[str, str] = field(default_factory=dict)


Source = Callable[[], Iterable[Measure]]


class Metrics:
    """The metrics of one process, in a registry of its own."""

    def __init__(self, *sources: Source) -> None:
        self._sources = [build_info, *sources]
        self._registry: CollectorRegistry | None = None

    def add(self, source: Source) -> None:
        """Also show what this function yields; measures of one name stand together."""
        self._sources.append(source)

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """All of them now, as text, and the content type that suits the Accept header of who asks."""
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        return encode(self._made_registry()), content_type

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client calls at each page."""
        for source in self._sources:
            for _, measures in groupby(source(), key=lambda measure: measure.name):
                yield _family(list(measures))

    def _made_registry(self) -> CollectorRegistry:
        if self._registry is None:
            from prometheus_client import CollectorRegistry, ProcessCollector

            # Not auto-described: that would read every source once more, before anything is there to read.
            self._registry = CollectorRegistry(auto_describe=False)
            self._registry.register(self)
            ProcessCollector(registry=self._registry)
        return self._registry


def build_info() -> Iterator[Measure]:
    labels = {"version": __version__, "python": platform.python_version()}
    yield Measure("gauge", "kizuna_build_info", "What runs here; always 1.", 1, labels)


def _family(measures: list[Measure]) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    first = measures[0]
    family: Any = kinds[first.kind](first.name, first.help, labels=tuple(first.labels))
    for measure in measures:
        value = measure.value
        exposed = _buckets_and_sum(value) if isinstance(value, Histogram) else (value,)
        family.add_metric(tuple(measure.labels.values()), *exposed)
    return cast("Metric", family)


def _buckets_and_sum(histogram: Histogram) -> tuple[list[tuple[str, int]], float]:
    """To Prometheus a bucket holds everything up to its bound, that of all smaller ones included."""
    bounds = (*(str(float(bound)) for bound in histogram.bounds), "+Inf")
    return list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.sum
