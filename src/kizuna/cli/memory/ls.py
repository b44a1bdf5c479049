"""`kizuna memory ls`."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.memory.contents import age, as_data, ends_in, excerpt, safe
from kizuna.cli.memory.options import not_none, read_priorities
from kizuna.cli.memory.reading import now_by, reading
from kizuna.cli.options import seconds_option
from kizuna.cli.output import Row, json_option, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.memory.item import Item
    from kizuna.memory.query import Page

_AT_ONCE = 500
# Where the output is no terminal, and has no width of its own.
_WIDTH = 160
_SHORTEST_EXCERPT = 20


@click.command()
@click.option("--type", metavar="TYPE", help="Only items of this type.")
@click.option("--context", metavar="CONTEXT", help="Only items of this context.")
@click.option("--priority", metavar="3|1-5", callback=read_priorities, help="Only of this priority, or these.")
@seconds_option("--ends-within", "Only what ends so soon.")
@click.option("--text", metavar="TEXT", help="Only with this somewhere in the content, in small letters or large.")
@click.option("--newest", "newest_first", is_flag=True, help="The newest first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="So many at most.")
@click.option("--cursor", metavar="CURSOR", default="", help="The next page: what was said behind the one before.")
@click.option("--all", "everything", is_flag=True, help="All pages.")
@json_option
@click.pass_obj
def ls(
    invocation: Invocation,
    /,
    ends_within_s: float | None,
    limit: int,
    cursor: str,
    everything: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """List items, in the order in which they were created.

    What is created or ends between two pages moves nothing else from one to the other. What is sealed is not shown in
    the table; --json opens it.

    \b
    $ kizuna memory ls
    $ kizuna memory ls --context trip-7 --priority 7-10 --newest
    $ kizuna memory ls --all --json | jq -r 'select(.type == "fact") | .content'
    """
    if everything and cursor:
        raise click.UsageError("--all begins at the beginning, and --cursor further on; keep one")
    wanted = not_none(options)

    async def look(k: Kizuna) -> None:
        if ends_within_s is not None:
            wanted["ends_before"] = await now_by(k) + ends_within_s
        if everything:
            await show_everything(k, wanted, as_json=as_json)
        else:
            await show_page(k, await k.memory.list(**wanted, limit=limit, cursor=cursor), as_json=as_json)

    reading(invocation, look)


async def show_page(k: Kizuna, page: Page, *, as_json: bool) -> None:
    await show_items(k, page.items, as_json=as_json)
    if page.cursor:
        # There may be an id in it.
        say(f"There is more: the same with --cursor {shlex.quote(page.cursor)}, or --all.")


async def show_everything(k: Kizuna, wanted: dict[str, Any], *, as_json: bool) -> None:
    """As JSON, page by page. A table is as wide as the widest of all, so it waits for them."""
    found: list[Item] = []
    async for item in k.memory.all(**wanted):
        found.append(item)
        if as_json and len(found) >= _AT_ONCE:
            show(map(as_data, found), as_json=True)
            found.clear()
    if found or not as_json:
        await show_items(k, found, as_json=as_json)


async def show_items(k: Kizuna, items: list[Item], *, as_json: bool) -> None:
    if as_json:
        show(map(as_data, items), as_json=True)
        return
    show(as_table(items, await now_by(k)), as_json=False)
    if not items:
        say("Nothing of the kind is remembered.")


def as_table(items: list[Item], now: float) -> list[Row]:
    """As wide as the terminal, if that leaves room for something of the contents."""
    rows = [as_row(item, now) for item in items]
    room = max(width() - sum(width_of(column, rows) for column in (rows or [{}])[0]), _SHORTEST_EXCERPT)
    return [{**row, "content": excerpt(item, room)} for row, item in zip(rows, items, strict=True)]


def width_of(column: str, rows: list[Row]) -> int:
    """With the gap behind it."""
    return max(len(column), *(len(click.unstyle(str(row[column]))) for row in rows)) + 2


def width() -> int:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH


def as_row(item: Item, now: float) -> Row:
    return {
        "id": safe(item.id),
        "type": safe(item.type, 30),
        "context": safe(item.context, 40),
        "priority": item.priority,
        "version": item.version,
        "age": age(item.created_at, now),
        "ends_in": ends_in(item.expires_at, now),
    }
