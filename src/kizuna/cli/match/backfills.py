"""`kizuna match backfills`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.match.matching import in_words, looking_on, safe, waited
from kizuna.cli.output import Row, json_option, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.match.backfills import Backfill


@click.command()
@json_option
@click.pass_obj
def backfills(invocation: Invocation, as_json: bool) -> None:
    """List the free places in running matches.

    Their game servers have offered them, and were heard of lately. GENERATION counts changes: a match that was made for
    an older one does not stand.

    \b
    $ kizuna match backfills
    $ kizuna match backfills --json | jq -r .id
    """

    async def look(k: Kizuna) -> tuple[list[Backfill], float]:
        from kizuna.match.pools import EVERYONE

        return await k.match.query_backfills(EVERYONE), await k.store.time_s()

    found, now_s = looking_on(invocation, look)
    show([as_data(one) if as_json else as_row(one, now_s) for one in found], as_json=as_json)
    if not found and not as_json:
        say("There are none.")


def as_data(backfill: Backfill) -> Row:
    return backfill.as_dict()


def as_row(backfill: Backfill, now_s: float) -> Row:
    return {
        "id": safe(backfill.id),
        "generation": backfill.generation,
        "age": waited(max(now_s - backfill.created_at, 0.0)),
        "tags": [safe(tag) for tag in backfill.tags],
        "fields": in_words({**backfill.doubles, **backfill.strings}),
    }
