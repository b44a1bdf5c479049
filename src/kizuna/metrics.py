"""What a process counts, in Prometheus' words.

Whoever counts keeps plain integers and hands over a function that reads them: it is called at a scrape and at
no other time, so counting costs nothing on the way of a command. prometheus_client is imported here alone, when
the first page is asked for.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from kizuna._version import __version__

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry


@dataclass(frozen=True)
class Measure:
    """One number. The name is in base units (bytes, seconds); that of a counter ends in `_total`."""

    kind: Literal["counter", "gauge"]
    name: str
    help: str
    value: float
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
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    first = measures[0]
    kind = CounterMetricFamily if first.kind == "counter" else GaugeMetricFamily
    family = kind(first.name, first.help, labels=tuple(first.labels))
    for measure in measures:
        family.add_metric(tuple(measure.labels.values()), measure.value)
    return family
