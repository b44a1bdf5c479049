"""Who comes, how often, how skilled, with whom, from where, and for how long: the table [population] of a file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from kizuna.errors import SettingsError
from kizuna.match.plan.reading import read_table
from kizuna.match.plan.tables import Name
from kizuna.match.simulation.draws import Draw

Share = Annotated[float, Meta(ge=0, le=1e12)]
Chance = Annotated[float, Meta(ge=0, le=1)]

HOURS_A_DAY = 24
_MOST_A_MINUTE = 1e6


class Curve(NamedTuple):
    """Parties a minute."""

    at: Callable[[float], float]
    """By the hour of the day."""
    most: float


class Region(Struct, kw_only=True, frozen=True):
    """Where some of the players live."""

    share: Share = 1.0
    latency_ms: dict[str, Annotated[float, Meta(gt=0, le=1e6)]] = {}
    """To each region that matches are played in: what is usual."""
    deviation: Annotated[float, Meta(ge=0, le=10)] = 0.25
    """Of the latencies, as a share of what is usual."""


class Population(Struct, kw_only=True, frozen=True):
    arrivals_per_minute: Any
    """Parties, each of which is one ticket: a number, 24 numbers by the hour, or a table of hours between which it
    rises and falls evenly."""
    hours: Annotated[float, Meta(gt=0, le=24 * 366)] = 24.0
    """How long is played."""
    starts_at: Annotated[float, Meta(ge=0, lt=24)] = 0.0
    """The hour of the day at which it begins."""
    seed: int = 1
    skill: Draw = Draw(mean=1500.0, deviation=300.0, least=0.0)
    skill_arg: Name = "skill"
    party_sizes: dict[str, Share] = {}
    """How many parties there are of each size; none: everybody is alone."""
    party_arg: Name = "party_size"
    strings: dict[str, dict[str, Share]] = {}
    """Arguments of tickets, and how many have each value."""
    tags: dict[str, Chance] = {}
    """How many tickets have each, between 0 and 1."""
    regions: dict[str, Region] = {}
    latency_arg: Name = "latency."
    patience_s: Draw = Draw(shape="exponential", mean=180.0)
    """How long they wait before they give up."""
    match_s: Draw = Draw(mean=600.0, deviation=120.0, least=1.0)
    """How long a match lasts."""
    come_back: Chance = 0.0
    """How many queue again after a match, between 0 and 1."""

    @property
    def arrivals(self) -> Curve:
        return _curve(self.arrivals_per_minute)


def read_population(table: object, origin: str) -> Population:
    """SettingsError, with every problem and its place, for what is no population."""
    population = read_table(Population, table, origin, "population")
    problems = [f"population.{place} ({origin}): {problem}" for place, problem in _problems(population)]
    if problems:
        raise SettingsError(*problems)
    return population


def _problems(population: Population) -> Iterator[tuple[str, str]]:
    for name in ("skill", "patience_s", "match_s"):
        yield from ((name, problem) for problem in getattr(population, name).problems())
    try:
        _curve(population.arrivals_per_minute)
    except ValueError as error:
        yield "arrivals_per_minute", str(error)
    for size in population.party_sizes:
        if not size.isdecimal() or not 1 <= int(size) <= 1000:
            yield "party_sizes", f"{size!r} is no number of players from 1 to 1000"
    shares = {"party_sizes": population.party_sizes, "regions": {n: r.share for n, r in population.regions.items()}}
    shares |= {f"strings.{name}": values for name, values in population.strings.items()}
    for place, found in shares.items():
        if (found or place.startswith("strings.")) and not sum(found.values()):
            yield place, "all shares are 0: nobody would be left"


def _curve(given: object) -> Curve:
    """ValueError, with the end of a sentence, for what is none."""
    if isinstance(given, dict):
        return _between([(_hour(hour), _rate(rate)) for hour, rate in given.items()])
    if isinstance(given, list):
        if len(given) != HOURS_A_DAY:
            raise ValueError(f"expected {HOURS_A_DAY} numbers, one for each hour; there are {len(given)}")
        rates = list(map(_rate, given))
        return Curve(lambda hour: rates[int(hour)], max(rates))
    rate = _rate(given)
    return Curve(lambda _: rate, rate)


def _between(points: list[tuple[float, float]]) -> Curve:
    """Straight lines from one to the next, and from the last to the first of the next day."""
    if not points:
        raise ValueError("expected at least one hour")
    points = sorted(points)
    (first, first_rate), (last, last_rate) = points[0], points[-1]
    around = [(last - HOURS_A_DAY, last_rate), *points, (first + HOURS_A_DAY, first_rate)]
    hours = [hour for hour, _ in around]
    lines = list(pairwise(around))

    def rate(hour: float) -> float:
        (start, low), (end, high) = lines[bisect_right(hours, hour) - 1]
        return low + (high - low) * (hour - start) / (end - start)

    return Curve(rate, max(rate for _, rate in points))


def _hour(given: str) -> float:
    try:
        hour = float(given)
    except ValueError:
        hour = -1.0
    if not 0 <= hour < HOURS_A_DAY:
        raise ValueError(f"{given!r} is no hour of the day, from 0 to below 24")
    return hour


def _rate(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= _MOST_A_MINUTE:
        raise ValueError(f"{given!r}: expected a number from 0 to {_MOST_A_MINUTE:g}, a list of them, or a table")
    return float(given)
