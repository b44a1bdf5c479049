"""Options that several commands of `kizuna memory` have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kizuna.cli.fields import read_fields
from kizuna.cli.memory.contents import value_of

context_option = click.option("--context", metavar="CONTEXT", help="Where it is: spares a search over all shards.")


def read_metadata(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, Any] | None:
    """Values are JSON if they can be read as such, like contents. None if there are none."""
    fields = read_fields(ctx, parameter, given)
    return {name: value_of(text.encode(errors="surrogateescape")) for name, text in fields.items()} or None


metadata_option = click.option(
    "--metadata",
    multiple=True,
    metavar="KEY=VALUE",
    callback=read_metadata,
    help="Something about it; repeatable. VALUE is JSON if it can be read as such, else text.",
)


def read_priorities(_: click.Context, __: click.Parameter, given: str | None) -> int | tuple[int, int] | None:
    """`3`, or `1-5` for all from one to the other."""
    if given is None:
        return None
    first, dash, last = given.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not dash)):
        raise click.BadParameter(f"{given!r} is neither a priority, as 3, nor a range of them, as 1-5")
    if dash and int(first) > int(last):
        raise click.BadParameter(f"{given!r} goes from the higher to the lower; write {last}-{first}")
    return (int(first), int(last)) if dash else int(first)


def not_none(options: dict[str, Any]) -> dict[str, Any]:
    """Those that were given."""
    return {name: value for name, value in options.items() if value not in (None, ())}
