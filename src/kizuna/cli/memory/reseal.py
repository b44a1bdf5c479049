"""`kizuna memory reseal`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.exit_codes import FAILURE
from kizuna.cli.memory.contents import safe
from kizuna.cli.memory.reading import remembering
from kizuna.cli.output import json_option, put, say, show

if TYPE_CHECKING:
    from kizuna.memory.resealing import Resealed

_LONGEST = 1000


@click.command()
@json_option
@click.pass_context
def reseal(ctx: click.Context, as_json: bool) -> None:
    """Seal everything sealed again, with the first key.

    After a new key was put in front of the others: when this has ended well, the others are needed no more. What was
    sealed with the first key already stays. Exit code 1 if something could not be opened; it is left as it is, and
    printed.

    \b
    $ kizuna memory reseal
    $ kizuna --set memory.seal_keys_file=keys.txt memory reseal --json
    """
    import msgspec

    done = remembering(ctx.obj, lambda k: k.memory.reseal())
    if as_json:
        show(msgspec.to_builtins(done), as_json=True)
    else:
        show_result(done)
    if done.failed:
        ctx.exit(FAILURE)


def show_result(done: Resealed) -> None:
    for reason in done.failed:
        put(safe(reason, _LONGEST))
    failed = f"; {len(done.failed):,} cannot be opened" if done.failed else ""
    say(f"{done.resealed:,} of {done.looked_at:,} items were sealed again{failed}.")
