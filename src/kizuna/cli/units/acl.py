"""`kizuna units acl`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.acl_users import acl_file_option, password_option, show_user
from kizuna.cli.output import json_option

if TYPE_CHECKING:
    from pathlib import Path

    from kizuna.cli import Invocation


@click.command()
@click.argument("name")
@click.option("--calls", multiple=True, metavar="UNIT", help="It may call this one, and no others; repeatable.")
@click.option("--calls-nobody", is_flag=True, help="It may call nobody.  [default: everybody]")
@click.option("--serves/--no-serves", default=True, show_default=True, help="Whether it answers requests to it.")
@click.option("--reads", multiple=True, metavar="UNIT", help="It may read the state that this one keeps; repeatable.")
@click.option("--user", help="The name of the user.  [default: NAME]")
@password_option
@acl_file_option
@json_option
@click.pass_obj
def acl(
    invocation: Invocation,
    name: str,
    calls: tuple[str, ...],
    calls_nobody: bool,
    serves: bool,
    reads: tuple[str, ...],
    user: str | None,
    password_file: Path | None,
    for_file: bool,
    as_json: bool,
) -> None:
    """Print the ACL line for a user that may be one unit, and nothing else.

    It has its own space, reads the requests to it, writes the replies to them, and reads its own. It can neither ask in
    the name of another unit, nor read what others ask and are told, nor remove anything. Redis 7 or Valkey is needed,
    where keys are granted for reading and for writing by themselves.

    It hears of what is sent to it, and of all that changes below its own name; for narrower patterns it looks every
    `units.poll_every_s`. A unit that listens to everybody needs `kizuna keys acl units`. The line has no effect by
    itself: give it to the server.

    \b
    $ kizuna units acl detector --calls-nobody --password-file secret | valkey-cli
    $ kizuna units acl camera --calls detector --no-serves --reads sensor --acl-file >> users.acl
    """
    from kizuna.store.targets import parse_target
    from kizuna.survey.known import Known
    from kizuna.survey.unit_acl import rules_for_unit

    if calls and calls_nobody:
        raise click.UsageError("--calls and --calls-nobody contradict each other")
    settings = invocation.settings
    may_call = calls if calls or calls_nobody else None
    database = parse_target(settings.store).database
    granted = rules_for_unit(Known(settings), name, calls=may_call, serves=serves, reads=reads, database=database)
    show_user(user or name.lower(), granted, password_file, for_file=for_file, as_json=as_json)
