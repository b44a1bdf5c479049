"""What somebody puts up with: more, the longer they have waited."""

from __future__ import annotations

from typing import NamedTuple


class Widening(NamedTuple):
    start: float
    by_s: float
    """So much more for each second."""
    most: float

    def after(self, waited_s: float) -> float:
        if waited_s <= 0:
            return self.start
        return max(self.start, min(self.start + self.by_s * waited_s, self.most))
