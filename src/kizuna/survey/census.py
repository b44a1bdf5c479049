"""Counts keys and their memory: by family, the biggest, and those that are not as declared. Does no I/O."""

from __future__ import annotations

import heapq
import math
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kizuna.survey.lint import problem_with

if TYPE_CHECKING:
    from kizuna.store.inspection.looking import Facts
    from kizuna.survey.known import Known

NO_FAMILY = ("nobody", "in no family")
_EXAMPLES = 5


@dataclass
class Tally:
    """Of one family, or of all."""

    keys: int = 0
    without_end: int = 0
    """Keys that have no time to live."""
    measured: int = 0
    sum_bytes: int = 0
    sum_squares: int = 0

    def add(self, facts: Facts) -> None:
        self.keys += 1
        self.without_end += facts.ttl_ms is None
        if facts.bytes is not None:
            self.measured += 1
            self.sum_bytes += facts.bytes
            self.sum_squares += facts.bytes**2

    def merge(self, other: Tally) -> None:
        self.keys += other.keys
        self.without_end += other.without_end
        self.measured += other.measured
        self.sum_bytes += other.sum_bytes
        self.sum_squares += other.sum_squares

    @property
    def bytes(self) -> int:
        """What all keys take together; of a sample, scaled up."""
        return round(self.sum_bytes * self.keys / self.measured) if self.measured else 0

    @property
    def error_bytes(self) -> int:
        """How far `bytes` may be off because only some were measured, in 19 of 20 cases."""
        if self.measured in (0, self.keys):
            return 0
        mean = self.sum_bytes / self.measured
        variance = max(self.sum_squares / self.measured - mean**2, 0)
        unmeasured = 1 - self.measured / self.keys
        return round(2 * self.keys * math.sqrt(variance / self.measured * unmeasured))


@dataclass
class Census:
    """Grows with the number of families, not with the number of keys."""

    known: Known
    biggest: int = 10
    total: Tally = field(default_factory=Tally)
    families: dict[tuple[str, str], Tally] = field(default_factory=dict)
    """By component and name of the family."""
    problems: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[bytes]] = field(default_factory=dict)
    """Of each problem, the first few keys."""
    _heap: list[tuple[int, bytes, str]] = field(default_factory=list)

    def add(self, facts: Iterable[Facts]) -> None:
        for one in facts:
            self._add(one)

    def biggest_keys(self) -> list[tuple[int, bytes, str]]:
        """Bytes, key and type, the biggest first."""
        return sorted(self._heap, reverse=True)

    def components(self) -> dict[str, Tally]:
        """The families of each component together, the largest first."""
        summed: dict[str, Tally] = {}
        for (component, _), tally in self.families.items():
            summed.setdefault(component, Tally()).merge(tally)
        return dict(sorted(summed.items(), key=lambda item: -item[1].bytes))

    def _add(self, facts: Facts) -> None:
        found = self.known.find(facts.key)
        name = (found.family.component, found.family.name) if found else NO_FAMILY
        self.families.setdefault(name, Tally()).add(facts)
        self.total.add(facts)
        if facts.bytes is not None:
            self._consider(facts.bytes, facts)
        if finding := problem_with(self.known, facts, found):
            self.problems[finding.problem] += 1
            examples = self.examples.setdefault(finding.problem, [])
            if len(examples) < _EXAMPLES:
                examples.append(facts.key)

    def _consider(self, size: int, facts: Facts) -> None:
        entry = (size, facts.key, facts.type)
        if len(self._heap) < self.biggest:
            heapq.heappush(self._heap, entry)
        elif self._heap and entry > self._heap[0] and entry not in self._heap:
            heapq.heapreplace(self._heap, entry)


def is_sampled(key: bytes, one_of: int) -> bool:
    """Whether this key is in the sample: the same ones every time, and spread over all names."""
    return zlib.crc32(key) % one_of == 0
