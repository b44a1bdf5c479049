"""What came of a simulation, as lines of text for a terminal. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from kizuna.match.simulation.histograms import Histogram, histogram, percent, short
from kizuna.match.simulation.outcome import NOBODY, Outcome, ProfileOutcome, Series

EIGHTHS = "▏▎▍▌▋▊▉█"
ASCII = "#"
_BAR = 24
_GAP = "   "


class Kind(NamedTuple):
    """One thing that was measured."""

    field: str
    title: str
    unit: str

    def of(self, profile: ProfileOutcome) -> Series:
        found: Series = getattr(profile, self.field)
        return found

    def told(self, value: float) -> str:
        if self.unit == " s" and 0 < value < 0.1:
            return f"{short(value * 1000)} ms"
        return f"{short(value)}{self.unit}"

    def figures(self, series: Series) -> str:
        """Percentiles, in a line."""
        summary = series.summary() or {}
        return "  ".join(f"{name} {self.told(value)}" for name, value in summary.items() if name != "mean")


WAITED = Kind("waited_s", "waited", " s")
SKILL = Kind("skill_apart", "skill apart in a match", "")
TEAMS = Kind("teams_apart", "skill apart between teams", "")
LATENCY = Kind("latency_ms", "latency", " ms")
KINDS = (WAITED, SKILL, TEAMS, LATENCY)
_COMPARED = {"skill": SKILL, "teams": TEAMS, "latency": LATENCY}


def draw(outcome: Outcome, width: int, *, blocks: str = EIGHTHS) -> Iterator[str]:
    """Each profile: how many were matched, and histograms of how long they waited and how good their matches are; side
    by side where there is room."""
    for profile in outcome.shown():
        yield from (*_heading(profile), "")
        pictures = [_picture(kind, kind.of(profile), blocks) for kind in KINDS if kind.of(profile)]
        yield from (f"  {line}".rstrip() for line in _beside(pictures, width - 2))


def rows(outcomes: Sequence[Outcome]) -> Iterator[Mapping[str, object]]:
    """A table to compare them by."""
    for outcome in outcomes:
        for profile in outcome.shown():
            yield {
                "file": outcome.origin,
                "profile": profile.name or "(none takes them)",
                "matched": f"{profile.tickets:,}",
                "gave_up": _counted(profile.gave_up, profile),
                "waited_p50": _told(WAITED, profile, 50),
                "waited_p95": _told(WAITED, profile, 95),
                **{f"{name}_p95": _told(kind, profile, 95) for name, kind in _COMPARED.items()},
            }


def blocks_for(encoding: str | None) -> str:
    """What bars are drawn with on a terminal of this encoding."""
    try:
        EIGHTHS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return EIGHTHS


def headline(profile: ProfileOutcome) -> str:
    """What became of those who came."""
    matched = f"{profile.tickets:,} tickets matched in {profile.matches:,} matches"
    return f"{matched}, {_counted(profile.gave_up, profile)} gave up, {profile.waiting:,} wait still"


def _heading(profile: ProfileOutcome) -> Iterator[str]:
    if profile.name == NOBODY:
        yield f"no profile takes {profile.came:,} tickets: {profile.gave_up:,} gave up, {profile.waiting:,} wait still"
    else:
        yield f"{profile.name}: {profile.function}"
        yield f"  {headline(profile)}"


def _counted(number: int, profile: ProfileOutcome) -> str:
    return f"{number:,} ({percent(number / profile.came)})" if number else "0"


def _told(kind: Kind, profile: ProfileOutcome, number: int) -> str:
    series = kind.of(profile)
    return kind.told(series.percentile(number)) if series else ""


# histograms


def _picture(kind: Kind, series: Series, blocks: str) -> list[str]:
    found = histogram(series)
    counts = [*found.counts, *([found.beyond] if found.beyond else [])]
    labels = [f"{short(found.width * number)}{kind.unit}" for number in range(len(counts))]
    wide = max(map(len, labels))
    bars = [
        f"{label:>{wide}} {_bar(found, count, blocks):{_BAR}} {percent(found.share(count)):>5}"
        for label, count in zip(labels, counts, strict=True)
    ]
    return [kind.title, kind.figures(series), *bars, ""]


def _bar(found: Histogram, count: int, blocks: str) -> str:
    """The longest is as long as there is room; something is never drawn as nothing."""
    steps = len(blocks)
    length = max(round(found.share(count) / found.most * _BAR * steps), 1) if count else 0
    whole, rest = divmod(length, steps)
    return blocks[-1] * whole + (blocks[rest - 1] if rest else "")


def _beside(pictures: Sequence[list[str]], width: int) -> Iterator[str]:
    if len(pictures) > 1:
        left, right = pictures[:2]
        wide = max(map(len, left))
        if wide + len(_GAP) + max(map(len, right)) <= width:
            yield from (f"{one:{wide}}{_GAP}{other}" for one, other in zip_longest(left, right, fillvalue=""))
            yield from _beside(pictures[2:], width)
            return
    for picture in pictures[:1]:
        yield from picture
        yield from _beside(pictures[1:], width)
