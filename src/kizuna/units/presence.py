"""What a unit tells about itself, one key for each process that is this unit. Does no I/O.

muf/detector/keep/presence.<process>     {"process": …, "serves": […], "counts": {…}, "rates": {…}, …}
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import msgspec

from kizuna.units.paths import PRESENCE, lowered

if TYPE_CHECKING:
    from kizuna.metrics import Histogram
    from kizuna.units.counts import Counts

LIVES = 3
"""A presence that is not written again for so many times its interval is over."""

_NOT_IN_IDS = re.compile(r"[^!-~]|[/*?\[\]\\{}]")
_LONGEST_READABLE = 200


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How much there was, for as long as the process lives; see `Counts`."""

    requests: int = 0
    replies: int = 0
    errors: int = 0
    timeouts: int = 0
    served: int = 0
    failed: int = 0
    claims_lost: int = 0
    heard: int = 0
    resyncs: int = 0


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """How many a second, of late."""

    requests: float = 0.0
    """That it sent."""
    served: float = 0.0
    """That it answered, be it with an error."""


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    p50: float
    p99: float


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """Others may write one as well: all but the process can be left out."""

    process: str
    host: str = ""
    pid: int | None = None
    since: float | None = None
    """In seconds since the epoch, by the clock of the process."""
    every_s: float | None = None
    """How often it is written."""
    serves: list[str] = []
    """The patterns."""
    listens: list[str] = []
    counts: Tally = Tally()
    rates: Rates = Rates()
    latency_ms: Quantiles | None = None
    """From request to reply or error, of what it asked; None if it asked nothing."""
    handling_ms: Quantiles | None = None
    """From claim to answer, of what it was asked."""
    polling: str | None = None
    """Why it has to look for what it should be told; None if it is told."""


def presence_id(process: str) -> str:
    """The id of the presence of this process. No two share one: a name that could not stand in a path as it is, such as
    one with capitals, has a sum of its own behind it."""
    plain = _NOT_IN_IDS.sub("-", lowered(process))[:_LONGEST_READABLE]
    if plain == process:
        return PRESENCE + plain
    return f"{PRESENCE}{plain}.{hashlib.sha256(process.encode(errors='surrogatepass')).hexdigest()[:12]}"


def tally_of(counts: Counts) -> Tally:
    return Tally(**{name: getattr(counts, name) for name in Tally.__struct_fields__})


def quantiles_of(histogram: Histogram) -> Quantiles | None:
    """In milliseconds."""
    if not any(histogram.counts):
        return None
    return Quantiles(p50=round(histogram.quantile(0.5) * 1000, 3), p99=round(histogram.quantile(0.99) * 1000, 3))
