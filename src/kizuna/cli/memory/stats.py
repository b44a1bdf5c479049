"""`kizuna memory stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.memory.contents import safe
from kizuna.cli.memory.reading import remembering
from kizuna.cli.output import Row, json_option, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.memory.counting import Totals

_MOST_TYPES = 20


@click.command()
@json_option
@click.pass_obj
def stats(invocation: Invocation, as_json: bool) -> None:
    """Count what is remembered.

    Items are counted by type and by priority. The names of all keys on the server are looked through for it, in small
    steps.

    \b
    $ kizuna memory stats
    $ kizuna memory stats --json | jq .by_type
    """
    import msgspec

    async def count(k: Kizuna) -> Totals:
        from kizuna.memory.counting import count_all

        return await count_all(k.store)

    totals = remembering(invocation, count)
    show(msgspec.to_builtins(totals) if as_json else as_record(totals), as_json=as_json)


def as_record(totals: Totals) -> Row:
    types = [f"{count:,} {safe(name, 30)}" for name, count in totals.by_type.items()]
    more = [f"{len(types) - _MOST_TYPES:,} more types"] if len(types) > _MOST_TYPES else []
    ended = f", and {totals.ended:,} whose time is over" if totals.ended else ""
    return {
        "items": f"{totals.items:,}{ended}",
        "by type": [*types[:_MOST_TYPES], *more],
        "by priority": [f"{count:,} of {priority}" for priority, count in totals.by_priority.items()],
        "contexts": f"{totals.contexts:,}, {totals.active_contexts:,} of them active" if totals.contexts else "0",
        "events in the feed": f"{totals.events:,}",
    }
