"""`kizuna memory put`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.memory.contents import age, given_content, safe, tell_of_backup
from kizuna.cli.memory.options import metadata_option, not_none
from kizuna.cli.memory.reading import remembering
from kizuna.cli.options import seconds_option
from kizuna.cli.output import json_option, put, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.memory.item import Item

KINDS = ("item", "result", "state")
USUAL_TYPE = "note"
_SAME_S = 0.01
# What an item is at its beginning, and stays.
_FOR_NEW_ITEMS = {"kind": "--kind", "cost_s": "--cost", "importance": "--importance", "depends_on": "--depends-on",
                  "generation": "--generation"}  # fmt: skip


@click.command("put")
@click.argument("content", required=False)
@click.option("--id", "id_", metavar="ID", help="What is there by this id is replaced.  [default: a new one]")
@click.option("--type", metavar="TYPE", help=f"What it is.  [default: {USUAL_TYPE}]")
@click.option("--context", metavar="CONTEXT", help="What it belongs to.  [default: global]")
@click.option("--priority", type=click.IntRange(1, 10), metavar="1-10", help="How much it matters.  [default: 5]")
@seconds_option("--ttl", "How long it lives, within bounds.  [default: as its kind says]")
@metadata_option
@click.option("--kind", type=click.Choice(KINDS), help="How long it lives by itself.  [default: item]")
@seconds_option("--cost", "Of a result: how long it took to calculate.", may_be_zero=True)
@click.option("--importance", type=click.FloatRange(0, 1), metavar="0-1", help="Of a state: how important it is.")
@click.option("--depends-on", multiple=True, metavar="NAME", help="It ends when this changes; repeatable.")
@click.option("--generation", metavar="NAME", help="It ends when this generation is raised.")
@click.option("--sealed/--plain", default=None, help="Whether the server may see it.  [default: memory.sealed]")
@click.option(
    "--if-version",
    type=click.IntRange(0),
    metavar="N",
    help="Only change it, and only if it is at this version; 0: only if it is not there. Else exit code 4.",
)
@click.option("--text", "is_text", is_flag=True, help="CONTENT is text, also if it could be JSON.")
@click.option("--json-content", "is_json", is_flag=True, help="CONTENT is JSON; refuse it if it is not.")
@json_option
@click.pass_obj
def put_item(
    invocation: Invocation,
    /,
    content: str | None,
    id_: str | None,
    if_version: int | None,
    is_text: bool,
    is_json: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Remember something, and print its id.

    CONTENT is JSON if it can be read as such, else text; `-`, or none where the input is no terminal, reads it from
    there. With --if-version only what is given is changed, and the rest stays.

    \b
    $ kizuna memory put "Ana prefers trains" --type fact --context trip-7
    $ kizuna memory put '{"step": 2}' --id plan --if-version 1
    $ curl -s https://example.com/rates | kizuna memory put --id rates --kind result --cost 2.5 --ttl 600
    """
    if is_text and is_json:
        raise click.UsageError("--text and --json-content contradict each other")
    given = not_none(options)
    refuse_contradictions(id_, if_version, given)
    value = given_content(content, is_text=is_text, is_json=is_json)
    item = remembering(invocation, lambda k: remembered(k, value, id_, if_version, given))
    if as_json:
        show(item.as_dict(), as_json=True)
    else:
        put(item.id)
        tell_of(item, given.get("ttl_s"))


def refuse_contradictions(id_: str | None, if_version: int | None, given: dict[str, Any]) -> None:
    if if_version is None:
        return
    if id_ is None:
        raise click.UsageError("--if-version is for an item that is known; say which by --id")
    if if_version and (fixed := [flag for name, flag in _FOR_NEW_ITEMS.items() if name in given]):
        raise click.UsageError(f"{fixed[0]} is said when an item is new, and --if-version {if_version} changes one")


async def remembered(k: Kizuna, content: Any, id_: str | None, if_version: int | None, given: dict[str, Any]) -> Item:
    if id_ is not None and if_version:
        return await k.memory.update(id_, content=content, expected_version=if_version, **given)
    given = {"type": USUAL_TYPE, **given}
    if id_ is None or if_version == 0:
        return await k.memory.create(content=content, id=id_, **given)
    return await k.memory.put(id_, content=content, **given)


def tell_of(item: Item, asked_s: float | None) -> None:
    lives = age(item.updated_at, item.expires_at)
    say(f"{safe(item.type)} in {safe(item.context)}, version {item.version}, for {lives}{bound(item, asked_s)}.")
    tell_of_backup(from_backup=item.from_backup)


def bound(item: Item, asked_s: float | None) -> str:
    """If it does not live as long as was asked for."""
    if asked_s is None or abs(item.ttl_s - asked_s) < _SAME_S:
        return ""
    setting = f"memory.{item.kind}_{'least' if item.ttl_s > asked_s else 'most'}_s"
    return f", as {setting} has it"
