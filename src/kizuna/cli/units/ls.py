"""`kizuna units ls`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.connecting import looking
from kizuna.cli.output import json_option, say, show
from kizuna.cli.readable import in_one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.units.fleet import KnownUnit
    from kizuna.units.presence import Quantiles

_NAMED = 5
_LONGEST = 500


@click.command()
@click.argument("pattern", default="*")
@click.option(
    "--every", "every_s", type=click.FloatRange(0.1), metavar="SECONDS", help="Look again and again, until Ctrl-C."
)
@click.option("--all", "everybody", is_flag=True, help="Also those of whom only old answers are left.")
@json_option
@click.pass_obj
def ls(invocation: Invocation, pattern: str, every_s: float | None, everybody: bool, as_json: bool) -> None:
    """List the units: who is there, what they serve, how much and how fast.

    PATTERN is a name, or a glob for names. The rates are requests a second, of the last few seconds. WAITS and WORKS
    are how long half of all, and 99 of 100, took: from request to reply for who asks, from claim to answer for who
    serves. KEYS counts what is on the server now; a unit without processes is known by that alone.

    \b
    $ kizuna units ls
    $ kizuna units ls "cam*" --every 2
    $ kizuna units ls --json | jq 'select(.serves != []) | .unit'
    """
    looking(invocation, lambda k: look(k, pattern, every_s, everybody=everybody, as_json=as_json))


async def look(k: Kizuna, pattern: str, every_s: float | None, *, everybody: bool, as_json: bool) -> None:
    import asyncio

    while True:
        found = [unit for unit in await units_of(k, pattern) if everybody or unit.is_there]
        if every_s is not None and not as_json and sys.stdout.isatty():
            click.clear()
        show_units(found, k.units.root, pattern, as_json=as_json)
        if every_s is None:
            return
        sys.stdout.flush()
        await asyncio.sleep(every_s)


async def units_of(k: Kizuna, pattern: str) -> list[KnownUnit]:
    from kizuna.store.scanning.globs import matcher
    from kizuna.units.paths import lowered

    fits = matcher([lowered(pattern)])
    return [unit for unit in await k.units.fleet() if fits(unit.name.encode())]


def show_units(found: Sequence[KnownUnit], root: str, pattern: str, *, as_json: bool) -> None:
    if as_json:
        show(map(as_data, found), as_json=True)
        return
    show(as_table(found, root), as_json=False)
    if not found:
        say(f"No unit is called {pattern}." if pattern != "*" else "Nobody is there.")
        say("`kizuna units serve NAME --exec PROGRAM` starts one; in Python, `k.unit(NAME).serving(handler)` does.")
    for reason in sorted({unit.polling for unit in found if unit.polling}):
        who = [unit.name for unit in found if unit.polling == reason]
        say(f"{some_of(who)} look for changes again and again, instead of hearing of them: {safe(reason)}")


def some_of(names: Sequence[str]) -> str:
    shown = ", ".join(map(safe, names[:_NAMED]))
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def as_data(unit: KnownUnit) -> dict[str, Any]:
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(
        {
            "unit": unit.name,
            "serves": unit.serves,
            "listens": unit.listens,
            "requests_per_s": unit.rates.requests,
            "served_per_s": unit.rates.served,
            "latency_ms": unit.latency_ms,
            "handling_ms": unit.handling_ms,
            "seen_s": unit.seen_s,
            "polling": unit.polling,
            "keys": unit.keys,
            "processes": unit.processes,
        }
    )
    return data


def as_table(found: Sequence[KnownUnit], root: str) -> list[dict[str, Any]]:
    """Without the columns in which nobody has anything."""
    rows = [as_row(unit, root) for unit in found]
    empty = {column for column in ("listens", "waits", "works") if not any(row[column] for row in rows)}
    return [{column: cell for column, cell in row.items() if column not in empty} for row in rows]


def as_row(unit: KnownUnit, root: str) -> dict[str, Any]:
    is_there = bool(unit.processes)
    return {
        "unit": click.style(safe(unit.name), fg="green") if is_there else safe(unit.name),
        "serves": [short(pattern, root) for pattern in unit.serves],
        "listens": [short(pattern, root) for pattern in unit.listens],
        "processes": len(unit.processes),
        "requests/s": unit.rates.requests if is_there else None,
        "served/s": unit.rates.served if is_there else None,
        "waits": half_and_most(unit.latency_ms),
        "works": half_and_most(unit.handling_ms),
        "keys": keys_of(unit),
        "seen": seen(unit),
    }


def short(pattern: str, root: str) -> str:
    return safe(pattern.removeprefix(f"{root}/"))


def safe(text: str) -> str:
    """Anybody may write what a unit tells about itself."""
    return in_one_line(text.encode(errors="surrogateescape"), _LONGEST)


def half_and_most(quantiles: Quantiles | None) -> str | None:
    return None if quantiles is None else f"{quantiles.p50:.3g} / {quantiles.p99:.3g} ms"


def keys_of(unit: KnownUnit) -> list[str]:
    keys = unit.keys
    counts = {"req": keys.requests, "res": keys.replies, "err": keys.errors, "keep": keys.kept, "claim": keys.claims}
    return [f"{count} {status}" for status, count in counts.items() if count]


def seen(unit: KnownUnit) -> str | None:
    from kizuna.cli.processes import ago

    if unit.seen_s is None:
        return None
    return f"{ago(unit.seen_s)} ago" + (click.style(", polls", fg="yellow") if unit.polling else "")
