"""`kizuna metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.exit_codes import NOT_FOUND
from kizuna.cli.output import Row, json_option, moment, put, say, show

if TYPE_CHECKING:
    from kizuna.cli import Invocation
    from kizuna.coordination.metrics.history import Sample
    from kizuna.settings import Settings

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds_in(_: click.Context, __: click.Parameter, text: str) -> float:
    """`90s`, `15m`, `1.5h`, `2d`; without a unit, seconds."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        seconds = float(number) * _UNITS[unit]
    except ValueError:
        seconds = 0
    if not 0 < seconds < 10**9:
        raise click.BadParameter(f"{text!r} is no time; write 90s, 15m, 1.5h or 2d")
    return seconds


@click.group()
def metrics() -> None:
    """Record values over time, and draw them.

    \b
    $ kizuna metrics record cpu 0.42
    $ kizuna metrics show cpu --since 1h
    """


@metrics.command("ls")
@json_option
@click.pass_obj
def list_metrics(invocation: Invocation, as_json: bool) -> None:
    """List the metrics, with their newest value and the last hour.

    \b
    $ kizuna metrics ls
    $ kizuna metrics ls --json | jq .metric
    """
    from kizuna.loop import run

    rows = run(look_at_all(invocation.settings, as_json=as_json))
    show(rows, as_json=as_json)
    if not rows:
        say("No metrics were recorded lately.")


@metrics.command("show")
@click.argument("name")
@click.option(
    "--since",
    "last_s",
    metavar="TIME",
    callback=seconds_in,
    default="1h",
    show_default=True,
    help="How far back: 15m, 2d.",
)
@json_option
@click.pass_context
def show_metric(ctx: click.Context, name: str, last_s: float, as_json: bool) -> None:
    """Draw a metric over time; as JSON, one object for each value. Exit code 3 if there is no value in that time.

    \b
    $ kizuna metrics show cpu
    $ kizuna metrics show memory --since 2d --json | jq .value
    """
    from kizuna.loop import run

    samples, now_s = run(look_back(ctx.obj.settings, name, last_s))
    if not samples:
        say(f"No value of {name} in that time; `kizuna metrics ls` shows what there is.")
        ctx.exit(NOT_FOUND)
    if as_json:
        show(({"at_s": at_s, "value": value} for at_s, value in samples), as_json=True)
    else:
        put(drawn(samples, now_s - last_s, now_s))
        put(axis(now_s - last_s, now_s))
        show(summary(samples), as_json=False)


# So that -3.5 is a value.
@metrics.command("record", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("value", type=float)
@click.pass_obj
def record(invocation: Invocation, name: str, value: float) -> None:
    """Record a value, now.

    \b
    $ kizuna metrics record cpu 0.42
    $ kizuna metrics record temperature -3.5
    """
    from kizuna.loop import run

    run(keep(invocation.settings, name, int(value) if value.is_integer() else value))


async def look_at_all(settings: Settings, *, as_json: bool) -> list[Row]:
    from kizuna.app import connect

    async with connect(settings) as k:
        now_s = await k.metrics.now()
        rows: list[Row] = []
        for name in await k.metrics.names():
            row = {"metric": name, "current": await k.metrics.current(name)}
            if not as_json:
                samples = await k.metrics.history(name, now_s - 3600)
                row["last_hour"] = drawn(samples, now_s - 3600, now_s, beside=40)
            rows.append(row)
        return rows


async def look_back(settings: Settings, name: str, last_s: float) -> tuple[list[Sample], float]:
    from kizuna.app import connect

    async with connect(settings) as k:
        return await k.metrics.history(name, last_s=last_s), await k.metrics.now()


async def keep(settings: Settings, name: str, value: float) -> None:
    from kizuna.app import connect

    async with connect(settings) as k:
        await k.metrics.record(name, value)


def drawn(samples: list[Sample], first_s: float, last_s: float, *, beside: int = 0) -> str:
    """As wide as the terminal, less what stands beside it."""
    import shutil
    import sys

    from kizuna.cli.sparkline import bars_for, sparkline
    from kizuna.coordination.metrics.history import downsample

    width = max(10, shutil.get_terminal_size().columns - beside)
    return sparkline(downsample(samples, width, first_s, last_s), width, bars=bars_for(sys.stdout.encoding))


def axis(first_s: float, last_s: float) -> str:
    """The two ends of the time that is drawn, below it."""
    import shutil

    first, last = moment(first_s), moment(last_s)
    return first + last.rjust(shutil.get_terminal_size().columns - len(first))


def summary(samples: list[Sample]) -> Row:
    values = [value for _, value in samples]
    figures = {"min": min(values), "mean": sum(values) / len(values), "max": max(values), "last": values[-1]}
    told = {name: f"{value:.6g}" for name, value in figures.items()}
    return {**told, "values": len(values), "last at": moment(samples[-1].at_s)}
