"""`kizuna memory pressure`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.memory.reading import remembering
from kizuna.cli.output import Row, json_option, say, show

if TYPE_CHECKING:
    from kizuna.cli import Invocation
    from kizuna.memory.pressure import Pressure, Relief
    from kizuna.settings import MemorySettings

COLOURS = {"calm": "green", "shorten": "yellow", "remove": "red"}


@click.command()
@click.option("--relieve", is_flag=True, help="Do now what is done about it.")
@json_option
@click.pass_obj
def pressure(invocation: Invocation, relieve: bool, as_json: bool) -> None:
    """Show how full it is, and what is done about it.

    Every process that remembers looks every `memory.pressure_every_s`, and one of them does what is said here. With
    --relieve it is done at once; what was removed is in the backup, if there is one.

    \b
    $ kizuna memory pressure
    $ kizuna memory pressure --relieve
    $ kizuna memory pressure --json | jq .ratio
    """
    settings = invocation.settings.memory
    if relieve:
        relief = remembering(invocation, lambda k: k.memory.relieve())
        show(relief.as_dict() if as_json else as_record(relief.pressure, settings), as_json=as_json)
        if not as_json:
            tell_of(relief)
    else:
        found = remembering(invocation, lambda k: k.memory.pressure())
        show(found.as_dict() if as_json else as_record(found, settings), as_json=as_json)


def as_record(found: Pressure, settings: MemorySettings) -> Row:
    """What is above a threshold, in its colour."""
    record: dict[str, object] = {"items": f"{found.items:,}"}
    for server in found.servers:
        name = "server" if len(found.servers) == 1 else f"server of {server.root}"
        record[name] = used_of(server.used, server.limit)
    if found.root_bytes is not None:
        record["memory alone"] = f"{used_of(found.root_bytes, found.budget_bytes)}, which is its budget"
    what = {
        "calm": "nothing",
        "shorten": shortening(settings),
        "remove": f"{shortening(settings)}; {removing(settings)}",
    }
    record["what is done"] = click.style(what[found.level], fg=COLOURS[found.level])
    if found.level == "calm":
        record[f"above {settings.shorten_above:.0%}"] = shortening(settings)
    if found.level != "remove":
        record[f"above {settings.remove_above:.0%}"] = removing(settings)
    return record


def used_of(used: int, limit: int) -> str:
    from kizuna.store.health.checks import size

    return f"{used / limit:.1%} full: {size(used)} of {size(limit)}" if limit else f"{size(used)}, without a limit"


def shortening(settings: MemorySettings) -> str:
    from kizuna.cli.processes import ago

    return f"items of priority {settings.low_priority} and less are given {ago(settings.shortened_s)} at most"


def removing(settings: MemorySettings) -> str:
    return f"items are removed until it is below {settings.remove_above:.0%}, lowest priority and soonest end first"


def tell_of(relief: Relief) -> None:
    said = []
    if relief.removed:
        said.append(f"{relief.removed:,} items were removed, {relief.spilled:,} of which the backup has")
    if relief.shortened:
        said.append(f"{relief.shortened:,} lives were shortened")
    if relief.by_another:
        said.append("another process is at it")
    say(f"{'; '.join(said) or 'There was nothing to do'}.")
