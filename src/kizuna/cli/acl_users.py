"""Users of the server: how the commands that print ACL lines take and show them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kizuna.cli.output import put, say, show

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

password_option = click.option("--password-file", type=FILE, help="Give it this password; only its SHA-256 is printed.")
"""Gives a command the argument `password_file`."""
acl_file_option = click.option(
    "--acl-file", "for_file", is_flag=True, help="Print a line for an ACL file instead of a command."
)
"""Gives a command the argument `for_file`."""


def show_user(
    user: str, rules: Sequence[str], password_file: Path | None, note: str = "", *, for_file: bool, as_json: bool
) -> None:
    """Print the line that gives a user these rules; the note is for people."""
    from kizuna.survey.acl import set_user

    password = password_file.read_text().rstrip("\r\n") if password_file else None
    line = set_user(user, rules, password=password, for_file=for_file)
    if as_json:
        show({"user": user, "rules": rules, "line": line}, as_json=True)
        return
    put(line)
    if note:
        say(note)
    if password is None:
        say(f"Nobody can sign in as {user} before it has a password: ACL SETUSER {user} '>…', or --password-file.")
