"""`kizuna keys acl` and `kizuna keys check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.acl_users import FILE, acl_file_option, password_option, show_user
from kizuna.cli.output import json_option, put, show

if TYPE_CHECKING:
    from pathlib import Path

    from kizuna.cli import Invocation

ABOUT_UNITS = (
    "The server grants patterns only as they stand, and each unit hears one with its own name in it: with this line "
    "units work, and look for their messages instead of hearing of them. `kizuna units acl NAME` lets one hear."
)

ABOUT_MATCH = (
    "With this line tickets can be created, watched and assigned. Who runs a backend is a member of the fleet, and "
    "needs `kizuna keys acl match coordination`."
)


@click.command()
@click.argument("components", metavar="[COMPONENT]...", nargs=-1)
@click.option("--operator", is_flag=True, help="For people who use `kizuna keys`: everything below the roots.")
@click.option("--user", default="kizuna", show_default=True, help="The name of the user.")
@password_option
@acl_file_option
@json_option
@click.pass_obj
def acl(
    invocation: Invocation,
    components: tuple[str, ...],
    operator: bool,
    user: str,
    password_file: Path | None,
    for_file: bool,
    as_json: bool,
) -> None:
    """Print the ACL line for a user that may do the work of a component, and nothing else.

    Without a COMPONENT, for processes that use all of them. The line has no effect by itself: give it to the server.

    \b
    $ kizuna keys acl coordination --user worker --password-file secret | valkey-cli
    $ kizuna keys acl --acl-file >> users.acl
    """
    from kizuna.store.targets import parse_target
    from kizuna.survey import acl as rules
    from kizuna.survey.known import Known

    settings = invocation.settings
    refuse_unknown(components, rules.components())
    known, database = Known(settings), parse_target(settings.store).database
    wanted = components or rules.components()
    granted = (
        rules.rules_for_operators(known, database=database)
        if operator
        else rules.rules_for(known, wanted, database=database)
    )
    note = "" if operator else note_about(wanted)
    show_user(user, granted, password_file, note, for_file=for_file, as_json=as_json)


def note_about(components: tuple[str, ...]) -> str:
    if "units" in components:
        return ABOUT_UNITS
    return ABOUT_MATCH if "match" in components and "coordination" not in components else ""


def refuse_unknown(components: tuple[str, ...], known: tuple[str, ...]) -> None:
    for component in components:
        if component not in known:
            raise click.BadParameter(f"there is no component {component!r}; there are {', '.join(known)}")


@click.command()
@click.argument("file", type=FILE)
@json_option
def check(file: Path, as_json: bool) -> None:
    """Check a JSON file that describes the namespace: root, key patterns, channels and times.

    Exit code 78 and a line for each problem if a pattern makes keys that nobody has declared.

    \b
    $ kizuna keys check namespace.json
    """
    from kizuna.coordination.namespace_file import load_namespace_file

    namespace = load_namespace_file(file)
    facts = {
        "root": namespace.root,
        "keyPatterns": {name: pattern.text for name, pattern in namespace.patterns.items()},
        "channels": {name: pattern.text for name, pattern in namespace.channels.items()},
        "ttl": dict(namespace.ttl),
    }
    if as_json:
        show(facts, as_json=True)
    else:
        counts = (
            f"key patterns: {len(namespace.patterns)}, channels: {len(namespace.channels)}, times: {len(namespace.ttl)}"
        )
        put(f"{file} is right. root: {namespace.root}, {counts}")
