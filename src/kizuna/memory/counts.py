"""What this process has done with memory so far, in Prometheus' words."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kizuna.errors import (
    ContextExists,
    ContextMissing,
    ItemExists,
    ItemMissing,
    NotSent,
    OutcomeForgotten,
    OutcomeUnknown,
    Refused,
    VersionConflict,
)
from kizuna.metrics import Histogram, Measure

DONE = "done"
# What an operation came to otherwise; the first that fits.
_OUTCOMES: tuple[tuple[type[BaseException], str], ...] = (
    (ItemMissing, "missing"),
    (ContextMissing, "missing"),
    (ItemExists, "exists"),
    (ContextExists, "exists"),
    (VersionConflict, "conflict"),
    (NotSent, "unreachable"),
    (OutcomeUnknown, "unknown"),
    (OutcomeForgotten, "unknown"),
    (Refused, "refused"),
    (asyncio.CancelledError, "cancelled"),
)


class Tally:
    """Of one operation."""

    __slots__ = ("done", "latency", "others")

    def __init__(self) -> None:
        self.done = 0
        self.others: Counter[str] = Counter()
        """By what they came to instead."""
        self.latency = Histogram()

    def succeed(self, seconds: float) -> None:
        """On the way of every operation."""
        self.done += 1
        self.latency.observe(seconds)

    def fail(self, error: BaseException, seconds: float) -> None:
        self.others[outcome_of(error)] += 1
        self.latency.observe(seconds)


@dataclass(slots=True)
class Counts:
    """One for each process; plain numbers, so that counting costs next to nothing."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    """By what was asked for."""
    hits: int = 0
    """Items that were asked for by their id, and were there."""
    misses: int = 0
    """And were not."""
    sweeps: int = 0
    swept: int = 0
    """Items and contexts that this process has ended, since they were due or what they belong to had ended."""
    sweep_late_s: float = 0.0
    """How long after its time the latest one of the last sweep ended."""
    last_sweep_at: float | None = None
    """On the clock of `time.monotonic`; None before the first."""
    settled: int = 0
    """Items and contexts that others had written, or removed, and that were put in order."""
    shortened: int = 0
    evicted: int = 0
    spilled: int = 0
    items: int = 0
    """At the last look, of all processes together; the same for the two below."""
    contexts: int = 0
    events: int = 0

    def tally(self, operation: str) -> Tally:
        """The one of this name, for whoever will count often."""
        return self.tallies.setdefault(operation, Tally())

    def count_each(self, operation: str, outcomes: Iterable[object]) -> None:
        """Of what was asked for together, and took the time that it took together."""
        tally = self.tally(operation)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                tally.others[outcome_of(outcome)] += 1
            else:
                tally.done += 1

    def observe_sweep(self, ended: int, late_ms: int, settled: int) -> None:
        self.sweeps += 1
        self.swept += ended
        self.settled += settled
        self.sweep_late_s = late_ms / 1000
        self.last_sweep_at = time.monotonic()

    @property
    def seconds_since_sweep(self) -> float | None:
        return None if self.last_sweep_at is None else time.monotonic() - self.last_sweep_at


def outcome_of(error: BaseException) -> str:
    return next((word for kind, word in _OUTCOMES if isinstance(error, kind)), "failed")


_COUNTERS = {
    "hits": "Items asked for by their id that were there.",
    "misses": "Items asked for by their id that were not there.",
    "sweeps": "Looks for what has ended.",
    "swept": "Items and contexts ended by this process since they were due.",
    "settled": "Items and contexts put in order that others had written or removed.",
    "shortened": "Items that end sooner since the server was nearly full.",
    "evicted": "Items removed since the server was nearly full.",
    "spilled": "Of these, those that the backup has.",
}
_GAUGES = {
    "items": "Items, at the last look.",
    "contexts": "Contexts, at the last look.",
    "events": "Events in the durable feed, at the last look.",
}


def measures_of(counts: Counts) -> Iterable[Measure]:
    return (*_operations(counts), *_latencies(counts), *_plain(counts), *_sweeping(counts))


def _operations(counts: Counts) -> Iterator[Measure]:
    text = "What was asked of memory, by what it came to."
    for operation, tally in counts.tallies.items():
        for outcome, number in {DONE: tally.done, **tally.others}.items():
            labels = {"operation": operation, "outcome": outcome}
            yield Measure("counter", "kizuna_memory_operations_total", text, number, labels)


def _latencies(counts: Counts) -> Iterator[Measure]:
    text = "From asking to the answer."
    for operation, tally in counts.tallies.items():
        yield Measure("histogram", "kizuna_memory_operation_seconds", text, tally.latency, {"operation": operation})


def _plain(counts: Counts) -> Iterator[Measure]:
    for name, text in _COUNTERS.items():
        yield Measure("counter", f"kizuna_memory_{name}_total", text, getattr(counts, name))
    for name, text in _GAUGES.items():
        yield Measure("gauge", f"kizuna_memory_{name}", text, getattr(counts, name))


def _sweeping(counts: Counts) -> Iterator[Measure]:
    text = "How long after its time the latest one of the last sweep ended."
    yield Measure("gauge", "kizuna_memory_sweep_late_seconds", text, counts.sweep_late_s)
    if (age_s := counts.seconds_since_sweep) is not None:
        yield Measure("gauge", "kizuna_memory_sweep_age_seconds", "Since the last sweep.", age_s)
