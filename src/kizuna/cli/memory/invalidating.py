"""`kizuna memory changed` and `kizuna memory raise`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.memory.contents import safe
from kizuna.cli.memory.reading import remembering
from kizuna.cli.output import json_option, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option
@click.pass_obj
def changed(invocation: Invocation, names: tuple[str, ...], as_json: bool) -> None:
    """End what depends on something that has changed.

    And what depends on that, and so on. NAME is what items were said to depend on: anything that programs have agreed
    on. An item that is changed or ends does the same to those that depend on its id.

    \b
    $ kizuna memory put 42 --depends-on prices.csv
    $ kizuna memory changed prices.csv
    """
    ended = remembering(invocation, lambda k: k.memory.changed(*names))
    if as_json:
        show({"ended": ended}, as_json=True)
    else:
        say(f"{ended} items that depended on it have ended." if ended != 1 else "1 item that depended on it has ended.")


@click.command("raise")
@click.argument("generation")
@json_option
@click.pass_obj
def raise_generation(invocation: Invocation, generation: str, as_json: bool) -> None:
    """End what is of older generations, all at once.

    \b
    $ kizuna memory put "[0.1, 0.7]" --generation model
    $ kizuna memory raise model
    """
    number = remembering(invocation, lambda k: raised(k, generation))
    if as_json:
        show({"generation": generation, "number": number}, as_json=True)
    else:
        say(f"{safe(generation)} is at {number} now; what was made of an older one has ended.")


async def raised(k: Kizuna, generation: str) -> int:
    number = await k.memory.raise_generation(generation)
    # In a program that stays, the sweeper puts them away.
    await k.memory.end_due()
    return number
