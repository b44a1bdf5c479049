"""`kizuna match assign` and `release`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.exit_codes import CONFLICT, NOT_FOUND
from kizuna.cli.fields import read_fields
from kizuna.cli.match.matching import matching, safe
from kizuna.cli.output import json_option, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation

WHY_NOT = {
    "missing": "is not there, or its time is over",
    "assigned": "has another assignment already, and keeps it",
}


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID... CONNECTION")
@click.option(
    "--extension",
    "extensions",
    multiple=True,
    metavar="NAME=TEXT",
    callback=read_fields,
    help="What else the game needs to know; repeatable.",
)
@json_option
@click.pass_context
def assign(ctx: click.Context, ids: tuple[str, ...], extensions: dict[str, str], as_json: bool) -> None:
    """Send the players of tickets to a game server.

    Each ticket by itself: those that cannot be assigned keep nobody else from it. Exit code 3 if one is not there, and
    4 if one has another assignment already.

    \b
    $ kizuna match assign d5k0jgfa5drg00a5m4hg d5k0jgfa5drg00a5m4i0 game-7.example.com:7777
    $ kizuna match assign d5k0jgfa5drg00a5m4hg game-7.example.com:7777 --extension map=dust
    """
    *which, connection = ids
    if not which:
        raise click.UsageError("say which tickets, and then the connection")

    async def send(k: Kizuna) -> dict[str, str]:
        from kizuna.match.matches import Group
        from kizuna.match.tickets import Assignment

        return await k.match.assign_tickets([Group(which, Assignment(connection, extensions))])

    failures = matching(ctx.obj, send)
    for id_ in which:
        tell(id_, failures.get(id_), as_json=as_json)
    if failures:
        ctx.exit(NOT_FOUND if "missing" in failures.values() else CONFLICT)


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everybody", is_flag=True, help="All that are being matched now, by whoever it is.")
@click.pass_obj
def release(invocation: Invocation, ids: tuple[str, ...], everybody: bool) -> None:
    """Give tickets back that somebody took to match them.

    They are pending, and can then be matched by others, without their waiting until that somebody counts as lost
    (match.pending_s). A match that it still makes of them is not assigned once they are in another.

    \b
    $ kizuna match release d5k0jgfa5drg00a5m4hg
    $ kizuna match release --all
    """
    if everybody == bool(ids):
        raise click.UsageError("say which tickets, or --all")

    async def give_back(k: Kizuna) -> None:
        await (k.match.release_all() if everybody else k.match.release_tickets(list(ids)))

    matching(invocation, give_back)


def tell(id_: str, failure: str | None, *, as_json: bool) -> None:
    if as_json:
        show({"ticket": id_, "outcome": failure or "done"}, as_json=True)
    elif failure:
        say(f"Ticket {safe(id_)} {WHY_NOT.get(failure, failure)}.")
