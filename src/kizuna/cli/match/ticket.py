"""`kizuna match ticket`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.exit_codes import NOT_FOUND, TRY_AGAIN
from kizuna.cli.fields import read_fields
from kizuna.cli.match.matching import coloured, in_words, looking_on, matching, safe, waited
from kizuna.cli.options import seconds_option
from kizuna.cli.output import Row, json_option, moment, put, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.match.overview import Seen
    from kizuna.match.pools import Pool
    from kizuna.match.tickets import Assignment, Ticket

_WAIT_S = 30.0
ids_argument = click.argument("ids", nargs=-1, required=True, metavar="ID...")


def read_numbers(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, float]:
    """`("skill=1500", …)`"""
    numbers = {}
    for name, text in read_fields(ctx, parameter, given).items():
        try:
            numbers[name] = float(text)
        except ValueError:
            raise click.BadParameter(f"{text!r} is no number; write NAME=NUMBER, as skill=1500") from None
    return numbers


@click.group()
def ticket() -> None:
    """Create, read, list and remove tickets.

    \b
    $ kizuna match ticket create --tag region:eu --double skill=1500 --string mode=ranked
    $ kizuna match ticket ls
    $ kizuna match ticket rm d5k0jgfa5drg00a5m4hg
    """


@ticket.command()
@click.option("--tag", "tags", multiple=True, help="A tag; repeatable.")
@click.option(
    "--double", "doubles", multiple=True, metavar="NAME=NUMBER", callback=read_numbers, help="A number; repeatable."
)
@click.option("--string", "strings", multiple=True, metavar="NAME=TEXT", callback=read_fields, help="Text; repeatable.")
@click.option(
    "--extension",
    "extensions",
    multiple=True,
    metavar="NAME=TEXT",
    callback=read_fields,
    help="Something for match functions and assigners to know; repeatable.",
)
@seconds_option("--ttl", "How long it waits.  [default: match.ticket_s]")
@click.option(
    "--wait",
    "wait_s",
    is_flag=False,
    flag_value=_WAIT_S,
    type=click.FloatRange(0, min_open=True),
    metavar="[SECONDS]",
    help=f"Wait for the assignment, and print that. Without SECONDS, for {_WAIT_S:g}.",
)
@json_option
@click.pass_context
def create(ctx: click.Context, /, wait_s: float | None, as_json: bool, **fields: Any) -> None:
    """Create a ticket, and print its id; or where to play, with --wait.

    It waits until a backend assigns it, or its time is over. Exit code 75 if no assignment comes in time: the ticket
    waits on then.

    \b
    $ kizuna match ticket create --double skill=1500 --string mode=ranked --tag region:eu
    $ kizuna match ticket create --double skill=1500 --wait 60
    $ kizuna match ticket create --json | jq -r .id
    """

    async def go(k: Kizuna) -> None:
        made = await k.match.create_ticket(**fields)
        if wait_s is None:
            show_made(made, as_json=as_json)
            return
        say(f"Ticket {made.id} waits.")
        try:
            show_assignment(made.id, await k.match.assignment(made.id, timeout_s=wait_s), as_json=as_json)
        except TimeoutError:
            say(f"No assignment within {wait_s:g}s. `kizuna match watch {made.id}` goes on waiting.")
            ctx.exit(TRY_AGAIN)

    matching(ctx.obj, go)


@ticket.command()
@ids_argument
@json_option
@click.pass_context
def get(ctx: click.Context, ids: tuple[str, ...], as_json: bool) -> None:
    """Print tickets, with their assignments. Exit code 3 if one of them is not there.

    \b
    $ kizuna match ticket get d5k0jgfa5drg00a5m4hg
    $ kizuna match ticket get d5k0jgfa5drg00a5m4hg --json | jq -r .assignment.connection
    """

    async def look(k: Kizuna) -> tuple[list[Seen], list[str], float]:
        from kizuna.errors import TicketMissing
        from kizuna.match.overview import Overview

        found, missing = [], []
        for id_ in ids:
            try:
                found.append(await Overview(k.match).one(id_))
            except TicketMissing:
                missing.append(id_)
        return found, missing, await k.store.time_s()

    found, missing, now_s = looking_on(ctx.obj, look)
    for seen in found:
        show(as_data(seen, now_s) if as_json else as_record(seen, now_s), as_json=as_json)
    tell_of_missing(ctx, missing)


@ticket.command()
@ids_argument
@click.pass_obj
def rm(invocation: Invocation, ids: tuple[str, ...]) -> None:
    """Remove tickets, as when players give up. One that is not there is none that waits: exit code 0.

    \b
    $ kizuna match ticket rm d5k0jgfa5drg00a5m4hg
    $ kizuna match ticket ls --tag test --json | jq -r .id | xargs kizuna match ticket rm
    """

    async def remove(k: Kizuna) -> None:
        for id_ in ids:
            await k.match.delete_ticket(id_)

    matching(invocation, remove)


@ticket.command()
@ids_argument
@click.pass_obj
def deindex(invocation: Invocation, ids: tuple[str, ...]) -> None:
    """Let nobody match tickets any more. They can be read until their time is over.

    \b
    $ kizuna match ticket deindex d5k0jgfa5drg00a5m4hg
    """

    async def take_out(k: Kizuna) -> None:
        for id_ in ids:
            await k.match.deindex_ticket(id_)

    matching(invocation, take_out)


@ticket.command()
@click.option("--tag", "tags", multiple=True, help="Only those with this tag; repeatable.")
@click.option(
    "--string", "strings", multiple=True, metavar="NAME=TEXT", callback=read_fields, help="Only with it; repeatable."
)
@click.option("--assigned", is_flag=True, help="Also those just assigned; this goes through all keys of the server.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="So many at most.")
@json_option
@click.pass_obj
def ls(
    invocation: Invocation,
    tags: tuple[str, ...],
    strings: dict[str, str],
    assigned: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List tickets, the oldest first.

    waiting: nobody has taken it. pending: a backend or director is matching it. assigned: it knows where to play.

    \b
    $ kizuna match ticket ls
    $ kizuna match ticket ls --tag region:eu --string mode=ranked
    $ kizuna match ticket ls --limit 100000 --json | jq -r 'select(.waited_s > 60) | .id'
    """

    async def look(k: Kizuna) -> tuple[list[Seen], float]:
        from kizuna.match.overview import Overview

        overview = Overview(k.match)
        seen = [*await overview.tickets(), *(await overview.assigned() if assigned else [])]
        return only(seen, tags, strings), await k.store.time_s()

    seen, now_s = looking_on(invocation, look)
    shown = seen[:limit]
    show([as_data(one, now_s) for one in shown] if as_json else as_table(shown, now_s), as_json=as_json)
    if not seen and not as_json:
        say("Nobody waits.")
    if len(seen) > limit:
        say(f"There are {len(seen) - limit} more: --limit {len(seen)} shows all.")


def only(seen: list[Seen], tags: Sequence[str], strings: Mapping[str, str]) -> list[Seen]:
    pool = wanted_pool(tags, strings)
    return [one for one in seen if pool.takes(one.ticket)]


def wanted_pool(tags: Sequence[str], strings: Mapping[str, str]) -> Pool:
    from kizuna.match.pools import Pool

    return Pool("wanted", tags=tags, strings=strings)


def show_made(made: Ticket, *, as_json: bool) -> None:
    if as_json:
        show(made.as_dict(), as_json=True)
    else:
        put(made.id)


def show_assignment(id_: str, assignment: Assignment, *, as_json: bool) -> None:
    if as_json:
        show({"ticket": id_, **assignment.as_dict()}, as_json=True)
    else:
        put(safe(assignment.connection, 500))


def as_data(seen: Seen, now_s: float) -> Row:
    ticket = seen.ticket
    return {**ticket.as_dict(), "state": seen.state, "waited_s": round(ticket.waited_s(now_s), 3)}


def as_table(seen: Sequence[Seen], now_s: float) -> list[dict[str, Any]]:
    """Without the columns in which nobody has anything."""
    rows = [as_row(one, now_s) for one in seen]
    empty = {column for column in ("tags", "fields", "connection") if not any(row[column] for row in rows)}
    return [{column: cell for column, cell in row.items() if column not in empty} for row in rows]


def as_row(seen: Seen, now_s: float) -> Row:
    ticket = seen.ticket
    return {
        "id": safe(ticket.id),
        "state": coloured(seen.state),
        "age": waited(ticket.waited_s(now_s)),
        "tags": [safe(tag) for tag in ticket.tags],
        "fields": in_words({**ticket.doubles, **ticket.strings}),
        "connection": safe(ticket.assignment.connection) if ticket.assignment else None,
    }


def as_record(seen: Seen, now_s: float) -> Row:
    from kizuna.match.values import shown

    ticket, assignment = seen.ticket, seen.ticket.assignment
    pending = {"pending since": moment(seen.pending_since)} if seen.pending_since else {}
    assigned = {"connection": safe(assignment.connection, 500)} if assignment else {}
    if assignment and assignment.extensions:
        assigned["told"] = in_words(shown(assignment.extensions))
    return {
        "id": safe(ticket.id),
        "state": coloured(seen.state),
        "created": f"{moment(ticket.created_at)}, {waited(ticket.waited_s(now_s))} ago",
        "tags": [safe(tag) for tag in ticket.tags],
        "doubles": in_words(ticket.doubles),
        "strings": in_words(ticket.strings),
        "extensions": in_words(shown(ticket.extensions)),
    } | (pending | assigned)


def tell_of_missing(ctx: click.Context, missing: Sequence[str]) -> None:
    for id_ in missing:
        say(f"There is no ticket {safe(id_)}, or its time is over.")
    if missing:
        ctx.exit(NOT_FOUND)
