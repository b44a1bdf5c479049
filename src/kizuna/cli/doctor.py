"""`kizuna doctor`."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from kizuna.cli.exit_codes import FAILURE
from kizuna.cli.output import json_option, put, say, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kizuna.cli import Invocation
    from kizuna.store.health.checks import Check

SIGNS = {"pass": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check everything, and say how to mend what is wrong. Exit code 1 if a check fails; warnings are no failure.

    It works also where other commands refuse to start. What mends is mostly a command for the server, to be run
    with valkey-cli or redis-cli by somebody who may.

    \b
    $ kizuna doctor
    $ kizuna --url redis://db:6379 doctor --json | jq -r 'select(.verdict != "pass") | .mend'
    """
    import msgspec

    from kizuna.loop import run
    from kizuna.settings import redact_url
    from kizuna.store.health.examination import examine

    invocation: Invocation = ctx.obj
    settings = invocation.settings
    if not as_json:
        # First: a server that does not answer is waited for, and it should be seen for which.
        say(f"Looking at {redact_url(settings.store.url)}")
    found = run(examine(settings))
    if as_json:
        show((msgspec.to_builtins(check) for check in found), as_json=True)
    else:
        show_lines(found)
    if any(check.verdict == "fail" for check in found):
        ctx.exit(FAILURE)


def show_lines(found: Sequence[Check]) -> None:
    width = max(len(check.check) for check in found)
    for check in found:
        sign = sign_of(check.verdict)
        indent = " " * (len(click.unstyle(sign)) + width + 3)
        put(f"{sign} {check.check:<{width}}  {check.found}")
        if check.mend:
            put(f"{indent}-> {check.mend}")
    counts = Counter(check.verdict for check in found)
    say(f"{counts['pass']} passed, {counts['warn']} to look at, {counts['fail']} failed.")
    if any(check.mend.startswith("CONFIG SET") for check in found):
        say("CONFIG SET lasts until the server restarts; CONFIG REWRITE after it makes it stay.")


def sign_of(verdict: str) -> str:
    """A sign on a terminal; elsewhere the word, which can be searched for."""
    if not sys.stdout.isatty():
        return verdict
    sign, colour = SIGNS[verdict]
    return click.style(sign, fg=colour, bold=True)
