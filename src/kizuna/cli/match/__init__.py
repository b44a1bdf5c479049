"""`kizuna match`."""

from __future__ import annotations

import click

from kizuna.cli import LazyGroup, Place

COMMANDS = {
    "frontend": Place(
        "kizuna.cli.match.frontend", "frontend", "Serve games, by gRPC and HTTP, until Ctrl-C or SIGTERM."
    ),
    "backend": Place("kizuna.cli.match.backend", "backend", "Make matches as a plan says, until Ctrl-C or SIGTERM."),
    "director": Place(
        "kizuna.cli.match.director", "director", "Serve directors and match functions, as Open Match does."
    ),
    "ticket": Place("kizuna.cli.match.ticket", "ticket", "Create, read, list and remove tickets."),
    "pools": Place("kizuna.cli.match.pools", "pools", "Show who waits, where, and for how long."),
    "watch": Place("kizuna.cli.match.watch", "watch", "Print assignments, as they happen."),
    "assign": Place("kizuna.cli.match.assigning", "assign", "Send the players of tickets to a game server."),
    "release": Place("kizuna.cli.match.assigning", "release", "Give tickets back that somebody took to match them."),
    "backfills": Place("kizuna.cli.match.backfills", "backfills", "List the free places in running matches."),
    "simulate": Place("kizuna.cli.match.simulate", "simulate", "Play a plan with a made-up population, and measure."),
}


@click.group(cls=LazyGroup, places=COMMANDS)
def match() -> None:
    """Bring players together, as Open Match and minimatch do.

    A ticket is a player, or a party, that waits. A backend makes matches of tickets, and assigns a game server to each.
    Games that speak Open Match, or minimatch, ask `kizuna match frontend`. All processes that use the same server and
    the same prefix share the tickets, also those of minimatch.

    \b
    $ kizuna match backend plan.toml
    $ kizuna match ticket create --double skill=1500 --wait 30
    $ kizuna match pools --watch
    """
