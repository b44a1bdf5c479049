"""`kizuna units keep`: the state that units share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.connecting import looking
from kizuna.cli.exit_codes import NOT_FOUND
from kizuna.cli.options import seconds_option
from kizuna.cli.output import json_option, put, say, show
from kizuna.cli.readable import in_one_line, readable
from kizuna.cli.units.values import given_value, name_for_this_process, put_value

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.units.state import Keep, StateChange

COLOURS = {"set": "green", "expired": "yellow", "deleted": "red"}


@click.group()
def keep() -> None:
    """Read, change and watch the state that units share.

    A value is bytes, and ends when its time is over: after `units.keep_s`, unless whoever writes it says otherwise.

    \b
    $ kizuna units keep set sensor temp 21.5 --ttl 60
    $ kizuna units keep get sensor temp
    $ kizuna units keep watch sensor
    """


@keep.command()
@click.argument("unit")
@click.argument("id_", metavar="ID")
@json_option
@click.pass_context
def get(ctx: click.Context, unit: str, id_: str, as_json: bool) -> None:
    """Print a value as it is. Exit code 3 if there is none.

    \b
    $ kizuna units keep get camera last-image > last.png
    """
    import asyncio

    async def read(k: Kizuna) -> tuple[bytes | None, float | None]:
        kept = kept_by(k, unit)
        raw, ends_in_s = await asyncio.gather(kept.get(id_), kept.ends_in_s(id_))
        return raw, ends_in_s

    raw, ends_in_s = looking(ctx.obj, read)
    if raw is None:
        say(f"{unit} keeps no {id_}, or no longer.")
        ctx.exit(NOT_FOUND)
    if as_json:
        show({"id": id_, "value": readable(raw), "ends_in_s": _finite(ends_in_s)}, as_json=True)
    else:
        put_value(raw)


@keep.command("set")
@click.argument("unit")
@click.argument("id_", metavar="ID")
@click.argument("value", required=False)
@seconds_option("--ttl", "How long it is kept.  [default: units.keep_s]")
@click.option("--expect", metavar="VALUE", help="Only if this is what is kept now; else exit code 4.")
@click.option("--expect-unset", is_flag=True, help="Only if nothing is kept now; else exit code 4.")
@click.pass_obj
def set_value(
    invocation: Invocation,
    unit: str,
    id_: str,
    value: str | None,
    ttl_s: float | None,
    expect: str | None,
    expect_unset: bool,
) -> None:
    """Keep a value from now on. `-`, or none where the input is no terminal, reads it from there.

    \b
    $ kizuna units keep set sensor temp 21.5 --ttl 60
    $ kizuna units keep set camera last-image - < last.png
    $ kizuna units keep set door state open --expect closed
    """
    if expect is not None and expect_unset:
        raise click.UsageError("--expect and --expect-unset are two different wishes; keep one")
    raw = given_value(value)

    async def write(k: Kizuna) -> float:
        kept = kept_by(k, unit)
        if expect is None and not expect_unset:
            await kept.set(id_, raw, ttl_s=ttl_s)
        else:
            expected = None if expect is None else expect.encode(errors="surrogateescape")
            await kept.replace(id_, raw, expected=expected, ttl_s=ttl_s)
        return kept.ttl_s if ttl_s is None else ttl_s

    lives_s = looking(invocation, write)
    say(f"{unit} keeps {id_} for {lives_s:g}s.")


@keep.command("ls")
@click.argument("unit")
@click.argument("pattern", default="*")
@json_option
@click.pass_obj
def list_values(invocation: Invocation, unit: str, pattern: str, as_json: bool) -> None:
    """List what a unit keeps, or what of it fits a pattern. What units note for themselves is left out.

    \b
    $ kizuna units keep ls sensor
    $ kizuna units keep ls sensor "temp*" --json | jq .value
    """
    rows = looking(invocation, lambda k: rows_of(kept_by(k, unit), pattern, as_json=as_json))
    show(rows, as_json=as_json)
    if not rows:
        say(f"{unit} keeps nothing.")


@keep.command()
@click.argument("unit")
@click.argument("pattern", default="*")
@click.option("--count", "most", type=click.IntRange(1), metavar="N", help="End after so many lines.")
@seconds_option("--for", "End after this time.", may_be_zero=True)
@json_option
@click.pass_obj
def watch(
    invocation: Invocation, unit: str, pattern: str, most: int | None, for_s: float | None, as_json: bool
) -> None:
    """Print what a unit keeps, and then each change, until Ctrl-C: one line each.

    \b
    $ kizuna units keep watch sensor
    $ kizuna units keep watch sensor "temp*" --json | jq .value
    """
    looking(invocation, lambda k: follow(kept_by(k, unit), pattern, most, for_s, as_json=as_json))


def kept_by(k: Kizuna, unit: str) -> Keep:
    return k.unit(name_for_this_process()).keep_of(unit)


async def rows_of(kept: Keep, pattern: str, *, as_json: bool) -> list[dict[str, Any]]:
    import asyncio

    ids = sorted([id_ async for id_ in kept.ids(pattern)])
    values = await kept.get_many(ids)
    ends = await asyncio.gather(*map(kept.ends_in_s, ids))
    # What has ended in between is not there.
    return [
        {
            "id": id_,
            "value": readable(values[id_]) if as_json else in_one_line(values[id_]),
            "ends_in_s": _finite(ends_in_s),
        }
        for id_, ends_in_s in zip(ids, ends, strict=True)
        if id_ in values
    ]


async def follow(kept: Keep, pattern: str, most: int | None, for_s: float | None, *, as_json: bool) -> None:
    import asyncio

    clock = asyncio.get_running_loop().time
    ends_at = None if for_s is None else clock() + for_s
    async with kept.watch(pattern) as changes:
        say("Watching; Ctrl-C ends it.")
        told = 0
        while most is None or told < most:
            left_s = None if ends_at is None else max(ends_at - clock(), 0.0)
            change = await changes.next(timeout_s=left_s)
            if change is None:
                return
            show_change(change, as_json=as_json)
            told += 1


def show_change(change: StateChange, *, as_json: bool) -> None:
    value = b"" if change.raw is None else change.raw
    if as_json:
        facts = {"id": change.id, "kind": change.kind, "value": readable(value), "found": change.found}
        show(facts, as_json=True)
        return
    kind = "is" if change.found else change.kind
    put(f"{click.style(f'{kind:<7}', fg=COLOURS[change.kind])}  {change.id}  {in_one_line(value)}".rstrip())


def _finite(seconds: float | None) -> float | None:
    """None for what others keep without an end."""
    return None if seconds is None or math.isinf(seconds) else round(seconds, 3)
