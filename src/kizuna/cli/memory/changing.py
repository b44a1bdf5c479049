"""`kizuna memory touch`, `rm`, `move` and `copy`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from kizuna.cli.exit_codes import NOT_FOUND
from kizuna.cli.memory.contents import age, as_data, safe
from kizuna.cli.memory.options import context_option
from kizuna.cli.memory.reading import now_by, remembering
from kizuna.cli.options import seconds_option
from kizuna.cli.output import json_option, put, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.memory.item import Item

T = TypeVar("T")

ids_argument = click.argument("ids", nargs=-1, required=True, metavar="ID...")
_AT_ONCE = 100


@click.command()
@ids_argument
@seconds_option("--ttl", "At least so long, within bounds.  [default: as long as it was given]")
@context_option
@json_option
@click.pass_context
def touch(ctx: click.Context, ids: tuple[str, ...], ttl_s: float | None, context: str | None, as_json: bool) -> None:
    """Let items live their whole lives again.

    From now on, and never shorter than before. Exit code 3 if one of them is not there.

    \b
    $ kizuna memory touch plan
    $ kizuna memory touch plan draft --ttl 3600
    """

    async def touch_each(k: Kizuna) -> tuple[list[Item | None], float]:
        items = await of_each(ids, lambda id_: k.memory.touch(id_, ttl_s=ttl_s, context=context))
        return items, await now_by(k)

    items, now = remembering(ctx.obj, touch_each)
    for item in filter(None, items):
        show_changed(item, f"ends in {age(now, item.expires_at)}", as_json=as_json)
    tell_of_missing(ctx, ids, items)


@click.command()
@ids_argument
@click.option(
    "--if-version", type=click.IntRange(1), metavar="N", help="Only if it is at this version; else exit code 4."
)
@context_option
@click.pass_context
def rm(ctx: click.Context, ids: tuple[str, ...], if_version: int | None, context: str | None) -> None:
    """Forget items.

    What depends on them ends as well. Exit code 3 if one of them is not there.

    \b
    $ kizuna memory rm plan
    $ kizuna memory rm plan --if-version 3
    $ kizuna memory ls --type draft --all --json | jq -r .id | xargs kizuna memory rm
    """
    if if_version is not None and len(ids) > 1:
        raise click.UsageError("--if-version is for one item; give one ID")

    async def forget(k: Kizuna) -> list[bool]:
        return await in_portions(ids, lambda id_: k.memory.delete(id_, expected_version=if_version, context=context))

    gone = remembering(ctx.obj, forget)
    say(f"Forgot {sum(gone)}.")
    tell_of_missing(ctx, ids, [was_there or None for was_there in gone])


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID... CONTEXT")
@json_option
@click.pass_context
def move(ctx: click.Context, ids: tuple[str, ...], as_json: bool) -> None:
    """Move items to another context.

    Exit code 3 if one of them is not there.

    \b
    $ kizuna memory move plan trip-8
    $ kizuna memory move plan draft trip-8
    """
    *which, to_context = ids
    if not which:
        raise click.UsageError("say which items, and then the context")
    items = remembering(ctx.obj, lambda k: of_each(which, lambda id_: k.memory.move(id_, to_context)))
    for item in filter(None, items):
        show_changed(item, f"is in {safe(item.context)}", as_json=as_json)
    tell_of_missing(ctx, which, items)


@click.command()
@click.argument("id_", metavar="ID")
@click.argument("to_context", metavar="CONTEXT")
@click.option("--id", "new_id", metavar="ID", help="The id of the copy.  [default: a new one]")
@json_option
@click.pass_obj
def copy(invocation: Invocation, id_: str, to_context: str, new_id: str | None, as_json: bool) -> None:
    """Copy an item to another context, and print the new id.

    Exit code 3 if it is not there.

    \b
    $ kizuna memory copy plan trip-8 --id plan-8
    """
    item = remembering(invocation, lambda k: k.memory.copy(id_, to_context, new_id=new_id))
    if as_json:
        show(as_data(item), as_json=True)
    else:
        put(item.id)


async def of_each(ids: Sequence[str], change: Callable[[str], Awaitable[Item]]) -> list[Item | None]:
    """What became of each; None for one that is not there."""
    from kizuna.errors import ItemMissing

    async def changed(id_: str) -> Item | None:
        try:
            return await change(id_)
        except ItemMissing:
            return None

    return await in_portions(ids, changed)


async def in_portions(ids: Sequence[str], do: Callable[[str], Awaitable[T]]) -> list[T]:
    import asyncio

    portions = (ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE))
    return [result for portion in portions for result in await asyncio.gather(*map(do, portion))]


def show_changed(item: Item, what: str, *, as_json: bool) -> None:
    if as_json:
        show(as_data(item), as_json=True)
    else:
        say(f"{safe(item.id)} {what}.")


def tell_of_missing(ctx: click.Context, ids: Sequence[str], found: Sequence[object]) -> None:
    missing = [id_ for id_, one in zip(ids, found, strict=True) if one is None]
    for id_ in missing:
        say(f"There is no item {safe(id_)}, or it has ended.")
    if missing:
        ctx.exit(NOT_FOUND)
