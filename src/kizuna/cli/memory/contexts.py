"""`kizuna memory contexts`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.exit_codes import NOT_FOUND
from kizuna.cli.memory.contents import age, ends_in, safe
from kizuna.cli.memory.options import metadata_option, not_none
from kizuna.cli.memory.reading import is_away, now_by, reading, remembering
from kizuna.cli.options import seconds_option
from kizuna.cli.output import Row, as_json_text, json_option, moment, put, say, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.memory.context import Context

USUAL_TYPE = "session"
AT_ENDS = ("delete", "leave")


class ListsByItself(click.Group):
    """Without a command it is `ls`, with its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_option = bool(args) and args[0].startswith("-") and args[0] not in self.get_help_option_names(ctx)
        return super().parse_args(ctx, ["ls", *args] if is_option or not args else args)


@click.group(cls=ListsByItself)
def contexts() -> None:
    """List, make and change what items belong to.

    A context ends like an item, and takes its items along, or leaves them to `global`. While it is active, each use of
    one of its items makes it live its whole life again. Without a command, contexts are listed.

    \b
    $ kizuna memory contexts
    $ kizuna memory contexts create "Trip to Kyoto" --id trip-7 --ttl 7200
    $ kizuna memory contexts rm trip-7 --items leave
    """


id_argument = click.argument("id_", metavar="ID")
at_end_option = click.option(
    "--at-end", type=click.Choice(AT_ENDS), help="What becomes of its items when it ends.  [default: delete]"
)


@contexts.command("ls")
@click.option("--type", metavar="TYPE", help="Only contexts of this type.")
@click.option("--active/--inactive", default=None, help="Only those that use keeps alive, or only the others.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="So many at most.")
@click.option("--cursor", metavar="CURSOR", default="", help="The next page: what was said behind the one before.")
@json_option
@click.pass_obj
def list_contexts(invocation: Invocation, /, limit: int, cursor: str, as_json: bool, **options: Any) -> None:
    """List contexts, in the order of their ids.

    \b
    $ kizuna memory contexts ls --active
    $ kizuna memory contexts --json | jq 'select(.items == 0) | .id'
    """

    async def look(k: Kizuna) -> None:
        page = await k.memory.contexts.list(**not_none(options), limit=limit, cursor=cursor)
        await show_contexts(k, page.contexts, as_json=as_json)
        if page.cursor:
            say(f"There is more: the same with --cursor {shlex.quote(page.cursor)}.")
        if not page.contexts:
            say("There are no contexts of the kind; items without one are in `global`.")

    reading(invocation, look)


@contexts.command()
@id_argument
@json_option
@click.pass_context
def get(ctx: click.Context, id_: str, as_json: bool) -> None:
    """Print a context. Exit code 3 if there is none.

    \b
    $ kizuna memory contexts get trip-7
    """

    async def look(k: Kizuna) -> bool:
        context = await k.memory.contexts.get(id_)
        if context is not None:
            await show_one(k, context, as_json=as_json)
        return context is not None

    if not reading(ctx.obj, look):
        say(f"There is no context {safe(id_)}, or it has ended.")
        ctx.exit(NOT_FOUND)


@contexts.command()
@click.argument("name")
@click.option("--id", "id_", metavar="ID", help="What items name it by.  [default: a new one]")
@click.option("--type", default=USUAL_TYPE, show_default=True, metavar="TYPE", help="What it is.")
@seconds_option("--ttl", "How long it lives, within bounds.  [default: memory.context_s]")
@metadata_option
@at_end_option
@click.option("--inactive", is_flag=True, help="Using it does not make it live longer.")
@json_option
@click.pass_obj
def create(
    invocation: Invocation, /, name: str, id_: str | None, inactive: bool, as_json: bool, **options: Any
) -> None:
    """Make a context, and print its id. Exit code 4 if there is one of this id.

    \b
    $ kizuna memory contexts create "Trip to Kyoto" --id trip-7 --type trip --metadata who=Ana
    """
    given = not_none(options)
    made = remembering(invocation, lambda k: k.memory.contexts.create(name, id=id_, active=not inactive, **given))
    if as_json:
        show(made.as_dict(), as_json=True)
    else:
        put(made.id)
        say(f"It lives for {age(made.updated_at, made.expires_at)}{', and longer while it is used' * made.is_active}.")


@contexts.command()
@id_argument
@click.option("--name", help="Its new name.")
@click.option("--type", metavar="TYPE", help="What it is.")
@seconds_option("--ttl", "How long it lives from now on, within bounds.")
@metadata_option
@at_end_option
@click.option(
    "--if-version", "expected_version", type=click.IntRange(1), metavar="N",
    help="Only if it is at this version; else exit code 4.",
)  # fmt: skip
@json_option
@click.pass_obj
def update(invocation: Invocation, /, id_: str, as_json: bool, **options: Any) -> None:
    """Change what is given of a context; the rest stays. Exit code 3 if there is none.

    \b
    $ kizuna memory contexts update trip-7 --name "Trip to Nara" --ttl 86400
    """
    given = not_none(options)
    if not given.keys() - {"expected_version"}:
        raise click.UsageError("there is nothing to change; say what, as by --name")
    changed = remembering(invocation, lambda k: k.memory.contexts.update(id_, **given))
    show_changed(changed, f"is at version {changed.version}", as_json=as_json)


@contexts.command()
@id_argument
@json_option
@click.pass_obj
def activate(invocation: Invocation, id_: str, as_json: bool) -> None:
    """From now on, let it live longer by being used. Exit code 3 if there is none.

    \b
    $ kizuna memory contexts activate trip-7
    """
    changed = remembering(invocation, lambda k: k.memory.contexts.activate(id_))
    show_changed(changed, "lives longer by being used", as_json=as_json)


@contexts.command()
@id_argument
@json_option
@click.pass_obj
def deactivate(invocation: Invocation, id_: str, as_json: bool) -> None:
    """From now on, let it end at its time, used or not. Exit code 3 if there is none.

    \b
    $ kizuna memory contexts deactivate trip-7
    """
    changed = remembering(invocation, lambda k: k.memory.contexts.deactivate(id_))
    show_changed(changed, f"ends at {moment(changed.expires_at)}", as_json=as_json)


@contexts.command()
@id_argument
@json_option
@click.pass_obj
def touch(invocation: Invocation, id_: str, as_json: bool) -> None:
    """Let it live its whole life again, from now on. Exit code 3 if there is none.

    \b
    $ kizuna memory contexts touch trip-7
    """
    changed = remembering(invocation, lambda k: k.memory.contexts.touch(id_))
    show_changed(changed, f"ends at {moment(changed.expires_at)}", as_json=as_json)


@contexts.command()
@id_argument
@click.option("--items", type=click.Choice(AT_ENDS), help="What becomes of its items.  [default: as was said at first]")
@click.pass_context
def rm(ctx: click.Context, id_: str, items: str | None) -> None:
    """End a context. Exit code 3 if there is none.

    \b
    $ kizuna memory contexts rm trip-7
    $ kizuna memory contexts rm trip-7 --items leave
    """
    if not remembering(ctx.obj, lambda k: k.memory.contexts.delete(id_, items=items)):  # type: ignore[arg-type]
        say(f"There is no context {safe(id_)}, or it has ended.")
        ctx.exit(NOT_FOUND)
    say(f"{safe(id_)} has ended.")


async def show_contexts(k: Kizuna, found: Sequence[Context], *, as_json: bool) -> None:
    counts = await items_of(k, found)
    if as_json:
        rows = ({**context.as_dict(), "items": count} for context, count in zip(found, counts, strict=True))
        show(rows, as_json=True)
        return
    now = await now_by(k)
    show([as_row(context, count, now) for context, count in zip(found, counts, strict=True)], as_json=False)


async def show_one(k: Kizuna, context: Context, *, as_json: bool) -> None:
    [count] = await items_of(k, [context])
    if as_json:
        show({**context.as_dict(), "items": count}, as_json=True)
    else:
        show(as_record(context, count, await now_by(k)), as_json=False)


async def items_of(k: Kizuna, found: Sequence[Context]) -> Sequence[int | None]:
    """The copy does not count them."""
    import asyncio

    return (
        [None] * len(found)
        if is_away(k)
        else await asyncio.gather(*(k.memory.count(context=context.id) for context in found))
    )


def as_row(context: Context, items: int | None, now: float) -> Row:
    return {
        "id": click.style(safe(context.id), fg="green") if context.is_active else safe(context.id),
        "name": safe(context.name),
        "type": safe(context.type, 30),
        "active": context.is_active,
        "items": items,
        "version": context.version,
        "age": age(context.created_at, now),
        "ends_in": ends_in(context.expires_at, now),
        "at_end": context.at_end,
    }


def as_record(context: Context, items: int | None, now: float) -> Row:
    told = context.as_dict()
    return {
        "id": safe(context.id),
        "name": safe(context.name),
        "type": safe(context.type),
        "active": context.is_active,
        "items": items,
        "version": context.version,
        "created": f"{moment(context.created_at)}, {age(context.created_at, now)} ago",
        "ends": f"{moment(context.expires_at)}, in {age(now, context.expires_at)}",
        "at end": "its items end with it" if context.at_end == "delete" else "its items are left to global",
        "metadata": safe(as_json_text(told["metadata"]), 500) if told["metadata"] else None,
        "problem": safe(told["problem"]) if "problem" in told else None,
    }


def show_changed(context: Context, what: str, *, as_json: bool) -> None:
    if as_json:
        show(context.as_dict(), as_json=True)
    else:
        say(f"{safe(context.id)} {what}.")
