"""`kizuna stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.exit_codes import NOT_FOUND
from kizuna.cli.output import Row, json_option, put, say, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kizuna.cli import Invocation
    from kizuna.coordination.stats.histograms import Figures, Histogram
    from kizuna.settings import Settings

Periods = list[tuple[str, "Figures"]]
"""Days or hours, by their labels."""


@click.group()
def stats() -> None:
    """Count, and show what was counted.

    \b
    $ kizuna stats count issues completed
    $ kizuna stats show issues --days 7
    """


@stats.command("ls")
@json_option
@click.pass_obj
def list_categories(invocation: Invocation, as_json: bool) -> None:
    """List what is counted, with the figures of today.

    \b
    $ kizuna stats ls
    $ kizuna stats ls --json | jq .category
    """
    from kizuna.loop import run

    rows = [
        {"category": category, **described(figures)} if as_json else category_row(category, figures)
        for category, figures in run(look_at_today(invocation.settings))
    ]
    show(rows, as_json=as_json)
    if not rows:
        say("Nothing was counted lately.")


@stats.command("show")
@click.argument("category")
@click.option("--days", type=click.IntRange(1, 3650), help="So many days, today included.  [default: those kept]")
@click.option("--hours", type=click.IntRange(1, 3650), help="So many hours, this one included.")
@click.option("--counter", "wanted", metavar="NAME", help="Only this counter or histogram.")
@json_option
@click.pass_context
def show_category(
    ctx: click.Context, category: str, days: int | None, hours: int | None, wanted: str | None, as_json: bool
) -> None:
    """Show the counters and histograms of a category over time. Exit code 3 if there are none.

    As JSON, one object for each day or hour.

    \b
    $ kizuna stats show issues
    $ kizuna stats show performance --hours 48 --counter took_ms
    $ kizuna stats show issues --days 7 --json | jq .counters.completed
    """
    from kizuna.loop import run

    if days and hours:
        raise click.UsageError("--days and --hours exclude each other")
    periods = run(look_back(ctx.obj.settings, category, days, hours))
    if wanted:
        periods = [(label, only(figures, wanted)) for label, figures in periods]
    if as_json:
        show([{"hour" if hours else "day": label, **described(figures)} for label, figures in periods], as_json=True)
    else:
        draw(periods)
    if not any(figures.counters or figures.histograms for _, figures in periods):
        say(f"Nothing was counted in {category} in that time; `kizuna stats ls` shows what was.")
        ctx.exit(NOT_FOUND)


# So that -1 is a number.
@stats.command("count", context_settings={"ignore_unknown_options": True})
@click.argument("category")
@click.argument("counter")
@click.argument("by", type=float, default=1)
@click.pass_obj
def count(invocation: Invocation, category: str, counter: str, by: float) -> None:
    """Add to a counter; 1, unless told otherwise.

    \b
    $ kizuna stats count issues completed
    $ kizuna stats count backup bytes 1048576
    $ kizuna stats count issues open -1
    """
    from kizuna.loop import run

    run(add(invocation.settings, category, counter, int(by) if by.is_integer() else by))


async def look_at_today(settings: Settings) -> Periods:
    from kizuna.app import connect

    async with connect(settings) as k:
        categories = await k.stats.categories()
        return [(category, (await k.stats.last_days(category, 1))[0].figures) for category in categories]


async def look_back(settings: Settings, category: str, days: int | None, hours: int | None) -> Periods:
    from kizuna.app import connect

    async with connect(settings) as k:
        if hours:
            return [(hour, figures) for hour, figures in await k.stats.last_hours(category, hours)]
        found = await (k.stats.last_days(category, days) if days else k.stats.days(category))
        return [(day.isoformat(), figures) for day, figures in found]


async def add(settings: Settings, category: str, counter: str, by: int | float) -> None:
    from kizuna.app import connect

    async with connect(settings) as k:
        await k.stats.count(category, counter, by)


def only(figures: Figures, name: str) -> Figures:
    from kizuna.coordination.stats.histograms import Figures

    return Figures(
        {counter: number for counter, number in figures.counters.items() if counter == name},
        {histogram: found for histogram, found in figures.histograms.items() if histogram == name},
    )


def described(figures: Figures) -> dict[str, Any]:
    """For machines."""
    histograms = {name: summary(histogram) for name, histogram in sorted(figures.histograms.items())}
    return {"counters": dict(sorted(figures.counters.items())), "histograms": histograms}


def summary(histogram: Histogram) -> dict[str, float]:
    """Rounded to what a histogram can tell: a percentile is off by some percent anyway."""
    if not histogram.count:
        return {"count": 0}
    values = {"mean": histogram.mean, **{f"p{percent}": histogram.percentile(percent) for percent in (50, 90, 99)}}
    ends = {"min": histogram.min, "max": histogram.max} if histogram.min <= histogram.max else {}
    return {"count": histogram.count, **{name: float(f"{value:.4g}") for name, value in (values | ends).items()}}


def category_row(category: str, figures: Figures) -> Row:
    counters = [f"{name} {number:g}" for name, number in sorted(figures.counters.items())]
    observed = [f"{name} {histogram.count}" for name, histogram in sorted(figures.histograms.items())]
    return {"category": category, "counters_today": counters, "observed_today": observed}


def draw(periods: Periods) -> None:
    """A line for each counter, and below it one for each histogram."""
    total = merged(figures for _, figures in periods)
    if total.counters or total.histograms:
        put(f"{periods[0][0]} to {periods[-1][0]}")
    if total.counters:
        show([counter_row(name, periods, total) for name in sorted(total.counters)], as_json=False)
    if total.histograms:
        show([histogram_row(name, periods, total) for name in sorted(total.histograms)], as_json=False)


def merged(all_figures: Iterable[Figures]) -> Figures:
    from kizuna.coordination.stats.histograms import Figures

    total = Figures()
    for figures in all_figures:
        total.merge(figures)
    return total


def counter_row(name: str, periods: Periods, total: Figures) -> Row:
    values = [figures.counters.get(name, 0) for _, figures in periods]
    ends = {"min": min(values), "max": max(values), "last": values[-1]}
    return {"counter": name, "over_time": line(values), **ends, "total": total.counters[name]}


def histogram_row(name: str, periods: Periods, total: Figures) -> Row:
    """The line is of the mean of each period."""
    found = [figures.histograms.get(name) for _, figures in periods]
    means = [histogram.mean if histogram and histogram.count else None for histogram in found]
    columns = ("count", "mean", "p50", "p90", "p99", "min", "max")
    told = summary(total.histograms[name])
    return {"histogram": name, "mean_over_time": line(means), **{column: told.get(column) for column in columns}}


def line(values: Sequence[float | None]) -> str:
    import shutil
    import sys

    from kizuna.cli.sparkline import bars_for, sparkline

    # What stands beside it takes about fifty columns.
    room = max(10, shutil.get_terminal_size().columns - 50)
    return sparkline(values, room, bars=bars_for(sys.stdout.encoding))
