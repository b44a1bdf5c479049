"""What each unit of a process has done so far, in Prometheus' words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kizuna.metrics import Histogram, Measure


@dataclass(slots=True)
class Counts:
    """One for each name: units of one name in one process are counted together."""

    requests: int = 0
    """That it has sent."""
    replies: int = 0
    """That it got."""
    errors: int = 0
    """That it got."""
    timeouts: int = 0
    served: int = 0
    """Requests of others that it has answered with a reply."""
    failed: int = 0
    """And with an error."""
    claims_lost: int = 0
    """Requests that another process was the first to take."""
    late: int = 0
    """Answers that were not written, since the claim had gone to another process."""
    heard: int = 0
    """Messages that were listened to."""
    resyncs: int = 0
    """How often it looked for what it may have missed."""
    latency: Histogram = field(default_factory=Histogram)
    """Seconds from request to reply or error."""
    handling: Histogram = field(default_factory=Histogram)
    """Seconds from the claim to the answer."""


_COUNTERS = {
    "requests": "Requests sent.",
    "replies": "Replies received.",
    "errors": "Errors received.",
    "timeouts": "Requests that nobody answered in time.",
    "served": "Requests of others answered with a reply.",
    "failed": "Requests of others answered with an error.",
    "claims_lost": "Requests that another process was the first to take.",
    "late": "Answers not written, since the claim had gone to another process.",
    "heard": "Messages listened to.",
    "resyncs": "Looks for what may have been missed.",
}
_HISTOGRAMS = {
    "latency": ("kizuna_unit_request_seconds", "From request to reply or error."),
    "handling": ("kizuna_unit_handling_seconds", "From the claim of a request to its answer."),
}


def measures_of(counts: Mapping[str, Counts], polling: Collection[str]) -> Iterable[Measure]:
    """`polling` are the names of the units that do."""
    return (*_counters(counts), *_histograms(counts), *_polling(counts, polling))


def _counters(counts: Mapping[str, Counts]) -> Iterator[Measure]:
    for name, text in _COUNTERS.items():
        for unit, of_unit in counts.items():
            yield Measure("counter", f"kizuna_unit_{name}_total", text, getattr(of_unit, name), {"unit": unit})


def _histograms(counts: Mapping[str, Counts]) -> Iterator[Measure]:
    for name, (measure, text) in _HISTOGRAMS.items():
        for unit, of_unit in counts.items():
            yield Measure("histogram", measure, text, getattr(of_unit, name), {"unit": unit})


def _polling(units: Iterable[str], polling: Collection[str]) -> Iterator[Measure]:
    text = "1 if the unit has to look for what the server does not announce."
    for unit in units:
        yield Measure("gauge", "kizuna_unit_polling", text, int(unit in polling), {"unit": unit})
