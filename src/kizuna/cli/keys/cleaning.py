"""`kizuna keys clean`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kizuna.cli.keys.opening import (
    anywhere_option,
    counted,
    nothing_matches,
    opened,
    progress_bar,
    quiet_option,
    wanted_of,
)
from kizuna.cli.output import json_option, say, show

if TYPE_CHECKING:
    from collections import Counter

    from kizuna.cli import Invocation
    from kizuna.settings import Settings
    from kizuna.store.scanning import Wanted
    from kizuna.survey.known import Known


@click.command()
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Remove them without asking.")
@click.option("--dry-run", is_flag=True, help="Count only.")
@anywhere_option
@quiet_option
@json_option
@click.pass_obj
def clean(
    invocation: Invocation,
    patterns: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    anywhere: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Remove keys by pattern. Counts them first, and asks; without a terminal it removes nothing unless --yes is given.

    Keys that are not below a root are never touched, unless --anywhere is given. What is written between counting and
    removing is removed as well, if it matches.

    \b
    $ kizuna keys clean 'temp:*'
    $ kizuna keys clean 'stats:*:*:2024-*' --yes
    """
    from kizuna.loop import run
    from kizuna.survey.known import Known

    settings = invocation.settings
    known = Known(settings)
    wanted = wanted_of(known, patterns, anywhere=anywhere)
    found = run(count(settings, wanted, known, quiet))
    total = found.total()
    if not as_json:
        show([{"keys": f"{keys:,}", "family": family} for family, keys in found.most_common()], as_json=False)
    removed = 0
    if not total:
        say(nothing_matches(known, patterns, anywhere=anywhere))
    elif not dry_run and (yes or is_confirmed(total)):
        removed = run(remove(settings, wanted, quiet))
        say(f"{counted(removed)} removed.")
    else:
        say(f"{counted(total)} would go; nothing was removed." + ("" if dry_run else " --yes removes them."))
    if as_json:
        show({"matching": total, "families": dict(found), "removed": removed}, as_json=True)


def is_confirmed(total: int) -> bool:
    return somebody_is_there() and click.confirm(f"Remove {counted(total)}?", err=True)


def somebody_is_there() -> bool:
    return sys.stdin.isatty()


async def count(settings: Settings, wanted: Wanted, known: Known, quiet: bool) -> Counter[str]:
    from collections import Counter

    from kizuna.store.scanning import Scan

    found_keys = Counter[str]()
    async with opened(settings) as store:
        scan = Scan(store, wanted)
        await scan.begin()
        with progress_bar("counting", quiet=quiet) as progress:
            async for keys in scan:
                for key in keys:
                    found = known.find(key)
                    found_keys[found.family.pattern_below(found.root) if found else "in no family"] += 1
                progress(scan.passed, scan.total)
    return found_keys


async def remove(settings: Settings, wanted: Wanted, quiet: bool) -> int:
    from kizuna.store.inspection import cleaning

    async with opened(settings) as store:
        with progress_bar("removing", quiet=quiet) as progress:
            return await cleaning.remove(store, wanted, progress=progress)
