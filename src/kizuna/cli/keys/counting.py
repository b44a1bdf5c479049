"""`kizuna keys tree`."""

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
    from collections.abc import Iterator

    from kizuna.cli import Invocation
    from kizuna.settings import Settings
    from kizuna.store.scanning import Wanted
    from kizuna.survey.tree import Branch, Tree

BESIDE_EACH_OTHER = 20


@click.command()
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option(
    "--depth", type=click.IntRange(1, 10), default=3, show_default=True, help="How many parts are told apart."
)
@anywhere_option
@quiet_option
@json_option
@click.pass_obj
def tree(
    invocation: Invocation, patterns: tuple[str, ...], depth: int, anywhere: bool, quiet: bool, as_json: bool
) -> None:
    """Count keys by the parts of their names, with their types and how many of them have a time to live.

    All shards of a root are counted together. Of many names below one part, those with the most keys are drawn, and
    the rest as one line, `…`.

    \b
    $ kizuna keys tree
    $ kizuna keys tree queue --depth 4
    """
    from kizuna.loop import run
    from kizuna.survey.known import Known

    settings = invocation.settings
    known = Known(settings)
    grown = run(grow(settings, wanted_of(known, patterns, anywhere=anywhere), depth, quiet))
    if as_json:
        show(branches(grown), as_json=True)
    else:
        draw(grown)
        say(f"{counted(grown.top.keys)}." if grown.top.keys else nothing_matches(known, patterns, anywhere=anywhere))


async def grow(settings: Settings, wanted: Wanted, depth: int, quiet: bool) -> Tree:
    from kizuna.store.inspection.looking import look_at_all
    from kizuna.store.scanning import Scan
    from kizuna.survey.tree import Tree

    grown = Tree(depth=depth)
    async with opened(settings) as store:
        scan = Scan(store, wanted)
        await scan.begin()
        with progress_bar("counting", quiet=quiet) as progress:
            async for facts in look_at_all(store, scan, measure=False):
                grown.add(facts)
                progress(scan.passed, scan.total)
    warn_of_moved_slots(scan.moved_slots)
    return grown


def draw(grown: Tree) -> None:
    drawn = list(drawn_names(grown))
    width = max((len(name) for name, _ in drawn), default=0)
    for name, branch in drawn:
        put(f"{name:<{width}}  {branch.keys:>9,}  {share_with_ttl(branch):>9}  {types_of(branch)}")


def drawn_names(grown: Tree) -> Iterator[tuple[str, Branch]]:
    open_at: list[bool] = []
    for line in grown.lines(most=BESIDE_EACH_OTHER):
        open_at[line.depth :] = [not line.last]
        stems = "".join("│  " if is_open else "   " for is_open in open_at[1 : line.depth])
        joint = ("├─ " if not line.last else "└─ ") if line.depth else ""
        yield f"{stems}{joint}{line.name}", line.branch


def share_with_ttl(branch: Branch) -> str:
    if branch.with_ttl in (0, branch.keys):
        return "all end" if branch.with_ttl else "none end"
    return f"{branch.with_ttl / branch.keys:.0%} end"


def types_of(branch: Branch) -> str:
    if len(branch.types) == 1:
        return next(iter(branch.types))
    return ", ".join(f"{kind} {count:,}" for kind, count in branch.types.most_common())


def branches(grown: Tree) -> Iterator[dict[str, Any]]:
    path: list[str] = []
    for line in grown.lines():
        path[line.depth :] = [line.name]
        branch = line.branch
        yield {"path": list(path), "keys": branch.keys, "with_ttl": branch.with_ttl, "types": dict(branch.types)}
