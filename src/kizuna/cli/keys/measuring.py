"""`kizuna keys stat`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.keys.opening import (
    anywhere_option,
    counted,
    nothing_matches,
    opened,
    progress_bar,
    quiet_option,
    wanted_of,
    warn_of_moved_slots,
)
from kizuna.cli.output import json_option, put, say, show

if TYPE_CHECKING:
    from kizuna.cli import Invocation
    from kizuna.settings import Settings
    from kizuna.store.scanning import Wanted
    from kizuna.survey.census import Census, Tally


@click.command()
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option("--biggest", type=click.IntRange(0, 1000), default=10, show_default=True, help="How many keys to name.")
@click.option(
    "--sample", type=click.IntRange(min=1), default=1, metavar="N", help="Measure one key in N, and say the error."
)
@anywhere_option
@quiet_option
@json_option
@click.pass_obj
def stat(
    invocation: Invocation,
    patterns: tuple[str, ...],
    biggest: int,
    sample: int,
    anywhere: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure memory by component and family; name the biggest keys, and what is not as declared.

    The size of a key is the server's own estimate, which looks at a few of its items.

    \b
    $ kizuna keys stat
    $ kizuna keys stat --sample 100 --json | jq .families
    """
    from kizuna.loop import run
    from kizuna.survey.census import Census
    from kizuna.survey.known import Known

    settings = invocation.settings
    known = Known(settings)
    census = Census(known, biggest)
    run(count(settings, wanted_of(known, patterns, anywhere=anywhere), census, sample, quiet))
    if as_json:
        show(census_as_data(census), as_json=True)
    elif census.total.keys:
        show_census(census)
    else:
        say(nothing_matches(known, patterns, anywhere=anywhere))


async def count(settings: Settings, wanted: Wanted, census: Census, sample: int, quiet: bool) -> None:
    from kizuna.store.inspection.looking import look_at
    from kizuna.store.scanning import Scan
    from kizuna.survey.census import is_sampled

    async with opened(settings) as store:
        scan = Scan(store, wanted)
        await scan.begin()
        with progress_bar("measuring", quiet=quiet) as progress:
            async for keys in scan:
                measured = [key for key in keys if is_sampled(key, sample)]
                others = [key for key in keys if not is_sampled(key, sample)] if sample > 1 else []
                census.add(await look_at(store, measured, scan))
                census.add(await look_at(store, others, scan, measure=False))
                progress(scan.passed, scan.total)
    warn_of_moved_slots(scan.moved_slots)


def show_census(census: Census) -> None:
    from kizuna.store.health.checks import size
    from kizuna.survey.known import shown

    ordered = sorted(census.families.items(), key=lambda item: -item[1].bytes)
    show([family_row(component, name, tally, census) for (component, name), tally in ordered], as_json=False)
    if census.biggest_keys():
        put("")
        show(
            [{"biggest": size(of), "type": kind, "key": shown(key)} for of, key, kind in census.biggest_keys()],
            as_json=False,
        )
    if census.problems:
        put("")
    for problem, how_many in census.problems.most_common():
        examples = ", ".join(map(shown, census.examples[problem]))
        more = ", …" if how_many > len(census.examples[problem]) else ""
        put(f"{how_many:,} {PROBLEMS[problem]}: {examples}{more}")
    by_component = ", ".join(f"{name}: {told_size(tally)}" for name, tally in census.components().items())
    say(f"{counted(census.total.keys)}, {census.total.without_end:,} without a time to live. {by_component}")
    if census.problems:
        say("`kizuna keys lint` names them all.")


PROBLEMS = {
    "undeclared": "in no family",
    "wrong type": "of another type than declared",
    "never ends": "without an end, though declared to expire",
    "ends": "with an end, though declared to stay",
    "beside a root": "that are not below a root",
}


def family_row(component: str, name: str, tally: Tally, census: Census) -> dict[str, Any]:
    share = tally.bytes / census.total.bytes if census.total.bytes else 0
    return {
        "component": component,
        "family": name,
        "keys": f"{tally.keys:,}",
        "memory": told_size(tally),
        "share": f"{share:.1%}",
        "without_end": f"{tally.without_end:,}",
    }


def told_size(tally: Tally) -> str:
    from kizuna.store.health.checks import size

    if not tally.measured:
        return "?"
    error = f" ± {size(tally.error_bytes)}" if tally.error_bytes else ""
    return f"{size(tally.bytes)}{error}"


def census_as_data(census: Census) -> dict[str, Any]:
    from kizuna.survey.known import shown

    return {
        **tally_as_data(census.total),
        "components": {name: tally_as_data(tally) for name, tally in census.components().items()},
        "families": [
            {"component": component, "family": name, **tally_as_data(tally)}
            for (component, name), tally in census.families.items()
        ],
        "biggest": [{"key": shown(key), "type": kind, "bytes": of} for of, key, kind in census.biggest_keys()],
        "problems": dict(census.problems),
        "examples": {problem: list(map(shown, keys)) for problem, keys in census.examples.items()},
    }


def tally_as_data(tally: Tally) -> dict[str, int]:
    return {
        "keys": tally.keys,
        "bytes": tally.bytes,
        "error_bytes": tally.error_bytes,
        "without_end": tally.without_end,
    }
