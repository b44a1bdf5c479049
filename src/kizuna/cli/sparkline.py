"""Numbers as a line of bars, for a terminal. This module does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-:=+*#"
GAP = " "

Values = Sequence[float | None]


def sparkline(values: Values, width: int, *, bars: str = BLOCKS) -> str:
    """One bar for each value, `width` at most: of more, the means of neighbours. The least value has the lowest bar and
    the greatest the highest; None leaves a gap. Values that are all the same are drawn low."""
    drawn = fitted(values, max(1, width))
    present = [value for value in drawn if value is not None]
    if not present:
        return GAP * len(drawn)
    least, most = min(present), max(present)
    return "".join(GAP if value is None else bars[_level(value, least, most, len(bars))] for value in drawn)


def fitted(values: Values, width: int) -> list[float | None]:
    """No more than `width` of them, each the mean of its share."""
    if len(values) <= width:
        return list(values)
    edges = [place * len(values) // width for place in range(width + 1)]
    return [_mean(values[start:end]) for start, end in pairwise(edges)]


def bars_for(encoding: str | None) -> str:
    """What a terminal with this encoding can show."""
    try:
        BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def _mean(values: Values) -> float | None:
    present = [value for value in values if value is not None]
    if not present:
        return None
    total = sum(present)
    if isfinite(total):
        return total / len(present)
    # The sum of very great numbers is none; that of their shares is, but for what was rounded.
    return max(min(present), min(max(present), sum(value / len(present) for value in present)))


def _level(value: float, least: float, most: float, levels: int) -> int:
    if most == least:
        return 0
    # Halved first: the difference of two very great numbers is none.
    share = (value / 2 - least / 2) / (most / 2 - least / 2)
    return min(levels - 1, int(share * levels))
