"""`kizuna server`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from kizuna.cli.exit_codes import NOT_FOUND
from kizuna.cli.output import Row, json_option, say, show
from kizuna.store.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from kizuna.cli import Invocation
    from kizuna.store.embedded.server import Status


@click.group()
def server() -> None:
    """Start, stop and look at the embedded server.

    It starts by itself when it is needed and ends with its last user; these commands are for having it stay.

    \b
    $ kizuna server start
    $ kizuna server status
    $ kizuna server stop
    """


@server.command()
@json_option
@click.pass_obj
def start(invocation: Invocation, as_json: bool) -> None:
    """Start the server, and have it stay until `kizuna server stop`. One that runs already stays, too.

    \b
    $ kizuna server start
    $ kizuna --set embedded.profile=durable server start --json | jq .port
    """
    embedded = EmbeddedServer(invocation.settings.embedded)
    asyncio.run(embedded.pin())
    show(row_of(embedded.status()), as_json=as_json)
    say("It stays until `kizuna server stop`.")


@server.command()
@click.option("--force", is_flag=True, help="Stop it even if others use it; they do not start it again.")
@json_option
@click.pass_obj
def stop(invocation: Invocation, force: bool, as_json: bool) -> None:
    """Stop the server, and return when it is gone.

    While others use it, this ends with exit code 5, and the server ends with the last of them.

    \b
    $ kizuna server stop
    $ kizuna server stop --force
    """
    embedded = EmbeddedServer(invocation.settings.embedded)
    was_running = asyncio.run(embedded.stop(force=force))
    if as_json:
        show(row_of(embedded.status()), as_json=True)
    say("The server is gone." if was_running else "No server was running.")


@server.command()
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show the server: where it is, and who uses it. Ends with exit code 3 if none is running.

    \b
    $ kizuna server status
    $ kizuna server status --json | jq .users
    """
    invocation: Invocation = ctx.obj
    found = EmbeddedServer(invocation.settings.embedded).status()
    show(row_of(found), as_json=as_json)
    if not found.keeper_pid:
        ctx.exit(NOT_FOUND)


def row_of(found: Status) -> Row:
    """The same names whether it runs or not; what there is not, is null."""
    facts = found._asdict() | {"folder": str(found.folder), "users": list(found.users)}
    return facts if found.keeper_pid else {name: value or None for name, value in facts.items()}
