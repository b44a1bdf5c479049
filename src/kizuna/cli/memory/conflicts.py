"""`kizuna memory conflicts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.memory.contents import safe
from kizuna.cli.memory.reading import reading
from kizuna.cli.output import Row, json_option, moment, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.memory.backup.journal import Conflict

_LONGEST = 200


@click.command()
@click.option("--forget", is_flag=True, help="Forget them, once they are printed.")
@json_option
@click.pass_obj
def conflicts(invocation: Invocation, forget: bool, as_json: bool) -> None:
    """Show what was written during an outage, and lost.

    While the server is away, writes are noted on this machine, and made up for when it is back. One whose item somebody
    else has changed or ended meanwhile is not: the server's stays, and the write is shown here, until it is forgotten.
    One that was sent just before the outage may have happened, and been changed by others since.

    \b
    $ kizuna memory conflicts
    $ kizuna memory conflicts --json --forget >> conflicts.jsonl
    """
    if not invocation.settings.memory.backup_folder:
        say(
            "No copy is kept on this machine, so nothing is written while the server is away; see memory.backup_folder."
        )
        return

    async def look(k: Kizuna) -> None:
        found = await k.memory.conflicts()
        show((as_data if as_json else as_row)(found), as_json=as_json)
        if not found:
            say("There are none.")
        if forget and k.memory.fallback is not None:
            say(f"Forgot {await k.memory.fallback.backup.forget_conflicts()}.")

    reading(invocation, look)


def as_data(found: list[Conflict]) -> list[Row]:
    return [conflict.as_dict() for conflict in found]


def as_row(found: list[Conflict]) -> list[Row]:
    return [
        {
            "what": conflict.what,
            "id": safe(conflict.id),
            "wanted": conflict.op,
            "based_on": f"version {conflict.base_version}" if conflict.base_version else "nothing",
            "written": moment(conflict.at),
            "found": moment(conflict.found_at),
            "happened": "perhaps" if conflict.may_have_happened else "no",
            "reason": safe(conflict.reason, _LONGEST),
        }
        for conflict in found
    ]
