"""Histograms of simulations in a picture: a row for each profile, a column for each thing that was measured.

Where several simulations are shown, profiles of one name have the same bins, so that they can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kizuna.match.simulation.drawing import KINDS, LATENCY, SKILL, TEAMS, WAITED, Kind, headline
from kizuna.match.simulation.histograms import Histogram, histogram, nice, percent, short
from kizuna.match.simulation.outcome import NOBODY, Outcome, ProfileOutcome
from kizuna.match.simulation.picture.canvas import Canvas, Colour

PAPER = Colour(255, 255, 255)
PANEL = Colour(248, 250, 252)
LINE = Colour(226, 232, 240)
AXIS = Colour(148, 163, 184)
INK = Colour(30, 41, 59)
FAINT = Colour(100, 116, 139)
MARK = Colour(220, 38, 38)
BARS = {
    WAITED: Colour(59, 130, 246),
    SKILL: Colour(16, 185, 129),
    TEAMS: Colour(139, 92, 246),
    LATENCY: Colour(245, 158, 11),
}

_EDGE, _GAP = 32, 28
_TITLE, _HEADLINE = 76, 66
_PANEL_WIDTH, _PANEL_HEIGHT = 520, 340
_PERCENTILES = (50, 95)


class _Row(NamedTuple):
    outcome: Outcome
    profile: ProfileOutcome


class Area(NamedTuple):
    """Where the bars of a panel stand."""

    left: int
    top: int
    width: int
    height: int


def chart(outcomes: Sequence[Outcome]) -> bytes:
    """As PNG."""
    shown = _rows(outcomes)
    columns = max(2, *(sum(bool(kind.of(row.profile)) for kind in KINDS) for row in shown))
    width = 2 * _EDGE + columns * (_PANEL_WIDTH + _GAP) - _GAP
    height = _TITLE + len(shown) * (_HEADLINE + _PANEL_HEIGHT + _GAP) + _EDGE - _GAP
    canvas = Canvas(width, height, PAPER)
    _title(canvas, outcomes)
    top = _TITLE
    for row in shown:
        _headline(canvas, top, row, named=len(outcomes) > 1)
        top += _HEADLINE
        for column, kind in enumerate(kind for kind in KINDS if kind.of(row.profile)):
            panel = Area(_EDGE + column * (_PANEL_WIDTH + _GAP), top, _PANEL_WIDTH, _PANEL_HEIGHT)
            _panel(canvas, panel, kind, row.profile, _like(shown, row.profile, kind))
        top += _PANEL_HEIGHT + _GAP
    return canvas.png()


def _rows(outcomes: Sequence[Outcome]) -> list[_Row]:
    """Profiles of one name one below the other."""
    found = [_Row(outcome, profile) for outcome in outcomes for profile in outcome.shown() if profile.name != NOBODY]
    names = list(dict.fromkeys(row.profile.name for row in found))
    return sorted(found, key=lambda row: names.index(row.profile.name))


def _like(shown: Sequence[_Row], profile: ProfileOutcome, kind: Kind) -> list[float]:
    return [value for row in shown if row.profile.name == profile.name for value in kind.of(row.profile)]


def _title(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    names = ", ".join(dict.fromkeys(outcome.origin for outcome in outcomes))
    first = outcomes[0]
    canvas.text(_EDGE, 28, f"Simulation of {names}", INK, 3)
    told = f"{short(first.hours)} hours, seed {first.seed}"
    canvas.text(canvas.width - _EDGE, 34, told, FAINT, 2, align=1.0)


def _headline(canvas: Canvas, top: int, row: _Row, *, named: bool) -> None:
    canvas.box(_EDGE, top, canvas.width - 2 * _EDGE, 1, LINE)
    origin = f"{row.outcome.origin}: " if named else ""
    canvas.text(_EDGE, top + 14, f"{origin}{row.profile.name} · {row.profile.function}", INK, 2)
    canvas.text(_EDGE, top + 38, headline(row.profile), FAINT, 2)


# panels


def _panel(canvas: Canvas, panel: Area, kind: Kind, profile: ProfileOutcome, like: Sequence[float]) -> None:
    left, top, width, height = panel
    series = kind.of(profile)
    canvas.box(*panel, PANEL)
    canvas.text(left + 16, top + 14, kind.title, INK, 2)
    canvas.text(left + 16, top + 38, kind.figures(series), FAINT, 2)
    area = Area(left + 64, top + 92, width - 64 - 24, height - 92 - 44)
    found = histogram(series, 20, like=like)
    most = _shares(canvas, area, found)
    _bars(canvas, area, found, most, BARS[kind])
    _places(canvas, area, found, kind)
    for number in _PERCENTILES:
        _mark(canvas, area, found, series.percentile(number), f"p{number}")


def _shares(canvas: Canvas, area: Area, found: Histogram) -> float:
    """Lines across, and what they stand for; the share at the top."""
    step = nice(found.most / 4)
    lines = [step * number for number in range(6) if step * (number - 1) < found.most]
    most = lines[-1]
    for share in lines:
        y = area.top + area.height - round(area.height * share / most)
        canvas.box(area.left, y, area.width, 1, LINE if share else AXIS)
        canvas.text(area.left - 10, y - 6, percent(share) if share else "0", FAINT, 2, align=1.0)
    return most


def _bars(canvas: Canvas, area: Area, found: Histogram, most: float, colour: Colour) -> None:
    for left, right, count in _columns(area, found):
        tall = round(area.height * found.share(count) / most)
        if count:
            canvas.box(left, area.top + area.height - max(tall, 1), right - left - 2, max(tall, 1), colour)


def _columns(area: Area, found: Histogram) -> Iterator[tuple[int, int, int]]:
    """The last one is for whatever is beyond, if anything is."""
    counts = [*found.counts, *([found.beyond] if found.beyond else [])]
    for number, count in enumerate(counts):
        yield _at(area, found, number), _at(area, found, number + 1), count


def _at(area: Area, found: Histogram, bins: float) -> int:
    return area.left + round(area.width * bins / (len(found.counts) + bool(found.beyond)))


def _places(canvas: Canvas, area: Area, found: Histogram, kind: Kind) -> None:
    """Along the bottom: some of the edges, so that they have room."""
    bins = len(found.counts)
    y = area.top + area.height + 8
    step = next(step for step in (1, 2, 4, 5, 10, 20) if bins / step <= 6)
    # "more" has to have its place at the end.
    last = bins - step // 2 if found.beyond and bins % step else bins
    for number in range(0, last + 1, step):
        x = _at(area, found, number)
        canvas.box(x, area.top + area.height, 1, 5, AXIS)
        canvas.text(x, y, f"{short(found.width * number)}{kind.unit}", FAINT, 2, align=0.5)
    if found.beyond and bins % step:
        canvas.text(_at(area, found, bins), y, "more", FAINT, 2)


def _mark(canvas: Canvas, area: Area, found: Histogram, value: float, name: str) -> None:
    """A dashed line where so many have had enough."""
    if value > found.end:
        return
    x = _at(area, found, value / found.width)
    for y in range(area.top - 4, area.top + area.height, 8):
        canvas.box(x, y, 2, 4, MARK)
    canvas.text(max(x + 1, area.left + 16), area.top - 20, name, MARK, 2, align=0.5)
