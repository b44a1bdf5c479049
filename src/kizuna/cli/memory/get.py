"""`kizuna memory get`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.exit_codes import NOT_FOUND
from kizuna.cli.memory.contents import age, put_content, put_readable, safe
from kizuna.cli.memory.options import context_option
from kizuna.cli.memory.reading import now_by, reading
from kizuna.cli.output import Row, as_json_text, json_option, moment, put, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.memory.item import Item


@click.command()
@click.argument("id_", metavar="ID")
@context_option
@click.option("--content", "only_content", is_flag=True, help="Print the content alone: text as it is, else JSON.")
@json_option
@click.pass_context
def get(ctx: click.Context, id_: str, context: str | None, only_content: bool, as_json: bool) -> None:
    """Print an item.

    Exit code 3 if there is none.

    \b
    $ kizuna memory get plan
    $ kizuna memory get plan --content | jq .step
    $ kizuna memory get plan --json | jq .version
    """
    if only_content and as_json:
        raise click.UsageError("--content is only the content, and --json everything; keep one")

    async def look(k: Kizuna) -> tuple[Item | None, float]:
        return await k.memory.get(id_, context=context), await now_by(k)

    item, now = reading(ctx.obj, look)
    if item is None:
        say(f"There is no item {safe(id_)}, or it has ended.")
        ctx.exit(NOT_FOUND)
    if as_json:
        show(item.as_dict(), as_json=True)
    elif only_content:
        put_content(item.content)
    else:
        content = item.content  # first: if it cannot be read, that is all there is to say
        show(as_record(item, now), as_json=False)
        put("")
        put_readable(content)


def as_record(item: Item, now: float) -> Row:
    """Without what most items do not have."""
    unusual = {
        "updated": f"{moment(item.updated_at)}, {age(item.updated_at, now)} ago" if item.version > 1 else None,
        "kind": item.kind if item.kind != "item" else None,
        "depends on": [safe(name) for name in item.depends_on],
        "generation": item.generation and f"{safe(item.generation)}, {item.more.generation_number}",
        "sealed": item.is_sealed or None,
        "from": "the copy on this machine" if item.from_backup else None,
        "metadata": safe(as_json_text(item.metadata), 500) if item.metadata else None,
    }
    return {
        "id": safe(item.id),
        "type": safe(item.type),
        "context": safe(item.context),
        "priority": item.priority,
        "version": item.version,
        "created": f"{moment(item.created_at)}, {age(item.created_at, now)} ago",
        "ends": f"{moment(item.expires_at)}, in {age(now, item.expires_at)}",
        **{name: fact for name, fact in unusual.items() if fact},
    }
