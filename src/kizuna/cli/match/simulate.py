"""`kizuna match simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kizuna.cli.match.matching import require
from kizuna.cli.output import json_option, put, say, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kizuna.cli import Invocation
    from kizuna.match.plan import Plan
    from kizuna.match.simulation.outcome import Outcome
    from kizuna.match.simulation.population import Population
    from kizuna.settings import MatchSettings


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--seed", type=int, help="Another population of the same kind.  [default: as the file says, or 1]")
@click.option(
    "--hours",
    type=click.FloatRange(0, 24 * 366, min_open=True),
    help="How long is played.  [default: as the file says, or 24]",
)
@click.option("--png", "picture", metavar="OUT", help="Write the histograms to this file, as a picture.")
@json_option
@click.pass_obj
def simulate(
    invocation: Invocation,
    files: tuple[str, ...],
    seed: int | None,
    hours: float | None,
    picture: str | None,
    as_json: bool,
) -> None:
    """Play a plan with a made-up population, and measure.

    FILE is a plan, as `kizuna match backend` takes it, with a table [population] that describes who comes, how often,
    how skilled, from where, and how long they wait. It is played in simulated time, without any server, by the same
    functions on the same pools; the same seed gives the same result. Several files are compared, and one without
    [population] is played with that of the first.

    \b
    $ kizuna match simulate arena.toml
    $ kizuna match simulate arena.toml --hours 2 --seed 7 --png arena.png
    $ kizuna match simulate arena.toml wider.toml
    $ kizuna match simulate arena.toml --json | jq .waited_s.p95
    """
    from kizuna.loop import run

    require("google.protobuf")
    if picture:
        check_name(Path(picture))
    outcomes = run(played(list(loaded(files)), seed, hours, invocation.settings.match))
    if as_json:
        show([row for outcome in outcomes for row in outcome.as_dicts()], as_json=True)
    else:
        print_all(outcomes)
    if picture:
        write_picture(Path(picture), outcomes)


def loaded(files: Sequence[str]) -> list[tuple[Plan, Population]]:
    """SettingsError for a file that is wrong, or the first if it has no population."""
    from kizuna.errors import SettingsError
    from kizuna.match.plan import Plan
    from kizuna.match.simulation.population import read_population

    plans = [Plan.load(file) for file in files]
    first = plans[0].population
    if first is None:
        raise SettingsError(f"population ({files[0]}) is missing: say who comes, in a table [population]")
    return [
        (plan, read_population(first if plan.population is None else plan.population, str(plan.path))) for plan in plans
    ]


async def played(
    plans: Sequence[tuple[Plan, Population]], seed: int | None, hours: float | None, settings: MatchSettings
) -> list[Outcome]:
    from kizuna.match.simulation.world import simulate as play

    return [await play(plan, population, seed=seed, hours=hours, settings=settings) for plan, population in plans]


def print_all(outcomes: Sequence[Outcome]) -> None:
    """Of several, a table to compare them by; of one, how everything is spread."""
    import shutil
    import sys

    from kizuna.match.simulation.drawing import blocks_for, draw, rows

    if len(outcomes) > 1:
        show(list(rows(outcomes)), as_json=False)
        return
    columns = shutil.get_terminal_size().columns
    for line in draw(outcomes[0], columns, blocks=blocks_for(sys.stdout.encoding)):
        put(line)


def check_name(picture: Path) -> None:
    """Before a day is played, and not after it."""
    if picture.suffix.lower() not in ("", ".png"):
        message = f"{picture} is no name for a PNG, which is all that can be written: say {picture.with_suffix('.png')}"
        raise click.BadParameter(message, param_hint="--png")


def write_picture(path: Path, outcomes: Sequence[Outcome]) -> None:
    from kizuna.match.simulation.picture.charts import chart

    try:
        path.write_bytes(chart(outcomes))
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
    say(f"The picture is in {path}.")
