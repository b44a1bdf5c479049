"""`kizuna match watch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.match.matching import in_words, matching, safe
from kizuna.cli.options import seconds_option
from kizuna.cli.output import json_option, put, say, show
from kizuna.cli.watching import count_option, show_until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.match.tickets import Assignment


@click.command()
@click.argument("ticket", required=False)
@count_option
@seconds_option("--for", "End after this time.")
@json_option
@click.pass_obj
def watch(invocation: Invocation, ticket: str | None, most: int | None, for_s: float | None, as_json: bool) -> None:
    """Print assignments, as they happen.

    Those of all tickets, until Ctrl-C; or of one: the one that it has, at once, and each that differs, until the ticket
    is gone, which is exit code 3. What happens while the connection is interrupted is not printed, which is said; of
    one ticket nothing is missed.

    \b
    $ kizuna match watch
    $ kizuna match watch d5k0jgfa5drg00a5m4hg --count 1
    $ kizuna match watch --json | jq -r .connection
    """

    async def follow(k: Kizuna) -> None:
        from contextlib import aclosing

        async with aclosing(of_one(k, ticket) if ticket else of_all(k)) as assignments:
            await show_until(assignments, lambda told: show_one(*told, as_json=as_json), most, for_s)

    matching(invocation, follow)


async def of_one(k: Kizuna, ticket: str) -> AsyncGenerator[tuple[str, Assignment]]:
    await k.match.get_ticket(ticket)
    say("Watching; Ctrl-C ends it.")
    async for assignment in k.match.watch_assignments(ticket):
        yield ticket, assignment


async def of_all(k: Kizuna) -> AsyncGenerator[tuple[str, Assignment]]:
    from kizuna.match.overview import Overview
    from kizuna.store.events.feeds import LookAgain

    async with Overview(k.match).assignments() as assignments:
        say("Watching; Ctrl-C ends it.")
        async for told in assignments:
            if isinstance(told, LookAgain):
                say(f"Assignments may have been missed: {told.reason}")
            else:
                yield told


def show_one(ticket: str, assignment: Assignment, *, as_json: bool) -> None:
    import time

    if as_json:
        show({"at": round(time.time(), 3), "ticket": ticket, **assignment.as_dict()}, as_json=True)
    else:
        put(as_line(ticket, assignment))


def as_line(ticket: str, assignment: Assignment) -> str:
    from datetime import datetime

    from kizuna.match.values import shown

    at = f"{datetime.now().astimezone():%H:%M:%S.%f}"[:-3]
    connection = click.style(safe(assignment.connection, 200), fg="cyan")
    return (
        f"{click.style(at, dim=True)} {safe(ticket)}  {connection}  {in_words(shown(assignment.extensions))}".rstrip()
    )
