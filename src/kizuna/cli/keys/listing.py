"""`kizuna keys ls`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.keys.opening import (
    anywhere_option,
    counted,
    ends_in,
    nothing_matches,
    opened,
    wanted_of,
    warn_of_moved_slots,
)
from kizuna.cli.output import json_option, put, say, show

if TYPE_CHECKING:
    from kizuna.cli import Invocation
    from kizuna.settings import Settings
    from kizuna.store.inspection.looking import Facts
    from kizuna.store.inspection.names import Names
    from kizuna.store.scanning import Wanted

PAGE = 100


@click.command()
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help=f"Show so many; {PAGE} unless set, 0 for all.")
@click.option("--after", default="", metavar="KEY", help="Show those behind this key: the next page.")
@anywhere_option
@json_option
@click.pass_obj
def ls(
    invocation: Invocation, patterns: tuple[str, ...], limit: int | None, after: str, anywhere: bool, as_json: bool
) -> None:
    """List keys with type, remaining time and size, sorted by name and page by page.

    With --json, or with --limit 0, they come as they are found, all of them, in no order.

    \b
    $ kizuna keys ls
    $ kizuna keys ls queue 'lock:issue:*'
    $ kizuna keys ls --json | jq -r 'select(.ttl_ms == null) | .key'
    """
    from kizuna.loop import run
    from kizuna.survey.known import Known

    settings = invocation.settings
    known = Known(settings)
    wanted = wanted_of(known, patterns, anywhere=anywhere)
    if limit == 0 or (as_json and limit is None and not after):
        run(stream(settings, wanted, as_json))
    else:
        found = run(page(settings, wanted, limit or PAGE, after, as_json))
        if not as_json:
            say_how_many(found, nothing_matches(known, patterns, anywhere=anywhere), after)


async def stream(settings: Settings, wanted: Wanted, as_json: bool) -> None:
    from kizuna.store.inspection.looking import look_at_all
    from kizuna.store.scanning import Scan

    async with opened(settings) as store:
        scan = Scan(store, wanted)
        async for facts in look_at_all(store, scan):
            # Many lines in one write: a million of them would take longer to print than to find.
            if facts:
                put("\n".join(map(json_line if as_json else streamed_line, facts)))
    warn_of_moved_slots(scan.moved_slots)


async def page(settings: Settings, wanted: Wanted, limit: int, after: str, as_json: bool) -> Names:
    from kizuna.store.inspection.looking import look_at
    from kizuna.store.inspection.names import first_names

    async with opened(settings) as store:
        names = await first_names(store, wanted, limit, after=after.encode(errors="surrogateescape"))
        facts = sorted(await look_at(store, names.first))
    show((as_data(one) for one in facts) if as_json else list(map(as_row, facts)), as_json=as_json)
    warn_of_moved_slots(names.moved_slots)
    return names


def say_how_many(found: Names, nothing: str, after: str) -> None:
    from kizuna.survey.known import shown

    behind = " behind it" if after else ""
    if not found.total:
        say(nothing)
    elif found.total > len(found.first):
        say(f"{len(found.first):,} of {counted(found.total)}{behind}; the next: --after '{shown(found.first[-1])}'")
    else:
        say(f"{counted(found.total)}{behind}.")


def as_data(facts: Facts) -> dict[str, Any]:
    from kizuna.survey.known import shown

    return {"key": shown(facts.key), "type": facts.type, "ttl_ms": facts.ttl_ms, "bytes": facts.bytes}


def json_line(facts: Facts) -> str:
    import json

    return json.dumps(as_data(facts), ensure_ascii=False)


def as_row(facts: Facts) -> dict[str, Any]:
    from kizuna.store.health.checks import size
    from kizuna.survey.known import shown

    return {
        "type": facts.type,
        "ends_in": ends_in(facts.ttl_ms),
        "size": size(facts.bytes or 0),
        "key": shown(facts.key),
    }


def streamed_line(facts: Facts) -> str:
    row = as_row(facts)
    return f"{row['type']:<6}  {row['ends_in']:<12}  {row['size']:>10}  {row['key']}"
