"""`kizuna memory`."""

from __future__ import annotations

import click

from kizuna.cli import LazyGroup, Place

COMMANDS = {
    "put": Place("kizuna.cli.memory.put", "put_item", "Remember something, and print its id."),
    "get": Place("kizuna.cli.memory.get", "get", "Print an item."),
    "ls": Place("kizuna.cli.memory.ls", "ls", "List items, in the order in which they were created."),
    "touch": Place("kizuna.cli.memory.changing", "touch", "Let items live their whole lives again."),
    "rm": Place("kizuna.cli.memory.changing", "rm", "Forget items."),
    "move": Place("kizuna.cli.memory.changing", "move", "Move items to another context."),
    "copy": Place("kizuna.cli.memory.changing", "copy", "Copy an item to another context, and print the new id."),
    "changed": Place("kizuna.cli.memory.invalidating", "changed", "End what depends on something that has changed."),
    "raise": Place(
        "kizuna.cli.memory.invalidating", "raise_generation", "End what is of older generations, all at once."
    ),
    "watch": Place("kizuna.cli.memory.watch", "watch", "Print what happens to items and contexts, as it happens."),
    "contexts": Place("kizuna.cli.memory.contexts", "contexts", "List, make and change what items belong to."),
    "stats": Place("kizuna.cli.memory.stats", "stats", "Count what is remembered."),
    "verify": Place("kizuna.cli.memory.verify", "verify", "Check that nothing is missing or left behind."),
    "pressure": Place("kizuna.cli.memory.pressure", "pressure", "Show how full it is, and what is done about it."),
    "reseal": Place("kizuna.cli.memory.reseal", "reseal", "Seal everything sealed again, with the first key."),
    "conflicts": Place("kizuna.cli.memory.conflicts", "conflicts", "Show what was written during an outage, and lost."),
    "serve": Place(
        "kizuna.cli.memory.serve", "serve", "Serve a REST API, until Ctrl-C or SIGTERM; /openapi.json describes it."
    ),
}


@click.group(cls=LazyGroup, places=COMMANDS)
def memory() -> None:
    """Remember, find, watch and check what programs remember.

    An item has content, a type, a context and a priority, and ends when its time is over. All processes that use the
    same server share them.

    \b
    $ kizuna memory put "Ana prefers trains" --type fact --context trip-7 --ttl 3600
    $ kizuna memory ls --context trip-7
    $ kizuna memory watch
    """
