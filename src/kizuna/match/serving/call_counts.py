"""How many calls there were, how they ended, and how long they took."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from grpc import StatusCode

from kizuna.metrics import Histogram, Measure

if TYPE_CHECKING:
    from kizuna.match.serving.rpcs import Rpc


class CallCount:
    """Of one method. Those that go on until their caller leaves are counted when they end, and not timed."""

    __slots__ = ("ends", "is_timed", "method", "open", "seconds")

    def __init__(self, rpc: Rpc) -> None:
        self.method = rpc.method
        self.open = 0
        """Not answered yet."""
        self.ends: Counter[StatusCode] = Counter()
        self.seconds = Histogram()
        self.is_timed = not rpc.endless

    def begin(self) -> float:
        self.open += 1
        return time.perf_counter()

    def end(self, code: StatusCode, began: float) -> None:
        self.open -= 1
        self.ends[code] += 1
        if self.is_timed:
            self.seconds.observe(time.perf_counter() - began)


def call_measures(counts: list[CallCount]) -> Iterator[Measure]:
    """For /metrics."""
    for count in counts:
        for code, ended in count.ends.items():
            labels = {"method": count.method, "code": code.name}
            yield Measure("counter", "kizuna_match_rpcs_total", "Calls that were answered.", ended, labels)
    for count in counts:
        labels = {"method": count.method}
        yield Measure("gauge", "kizuna_match_rpcs_open", "Calls that are not answered yet.", count.open, labels)
    for count in counts:
        if count.is_timed:
            labels = {"method": count.method}
            yield Measure("histogram", "kizuna_match_rpc_seconds", "Until the answer.", count.seconds, labels)
