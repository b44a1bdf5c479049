"""Numbers as they are found among people: drawn from a shape that a file describes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

Number = Annotated[float, Meta(ge=-1e12, le=1e12)]


class Draw(Struct, kw_only=True, frozen=True):
    """normal and lognormal have a mean and a deviation, exponential has a mean, uniform goes from `least` to `most`.
    Whatever is drawn is kept between `least` and `most`."""

    shape: Literal["normal", "lognormal", "exponential", "uniform"] = "normal"
    mean: Number = 0.0
    deviation: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    least: float = -math.inf
    most: float = math.inf

    def problems(self) -> Iterator[str]:
        if not self.least <= self.most:
            yield f"no number is between least = {self.least:g} and most = {self.most:g}"
        if self.shape == "uniform" and not math.isfinite(self.most - self.least):
            yield "uniform goes from least to most: say both"
        if self.shape in ("lognormal", "exponential") and self.mean <= 0:
            yield f"mean = {self.mean:g}: expected a number above 0 for what is {self.shape}"

    def draw(self, chance: random.Random) -> float:
        return min(max(self._drawn(chance), self.least), self.most)

    def _drawn(self, chance: random.Random) -> float:
        if self.shape == "uniform":
            return chance.uniform(self.least, self.most)
        if self.shape == "exponential":
            return chance.expovariate(1 / self.mean)
        if self.shape == "lognormal":
            variance = math.log1p((self.deviation / self.mean) ** 2)
            return chance.lognormvariate(math.log(self.mean) - variance / 2, math.sqrt(variance))
        return chance.gauss(self.mean, self.deviation)


class Choice:
    """One of several, each by its share of the whole."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._names, self._weights = list(shares), list(shares.values())

    def draw(self, chance: random.Random) -> str:
        return chance.choices(self._names, self._weights)[0]
