"""`kizuna flags`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.exit_codes import FAILURE
from kizuna.cli.live_values import (
    Words,
    expect_option,
    expect_unset_option,
    expected_of,
    listed,
    most_option,
    note_option,
    past,
    reverted,
    tell,
    watched,
    with_flags,
)
from kizuna.cli.output import json_option, put, say, show

if TYPE_CHECKING:
    from kizuna.cli import Invocation


@click.group()
def flags() -> None:
    """Read, change and watch switches that programs follow.

    A flag is on, off, or on for a part of all users, say: then always for the same ones. Programs see a change
    within a second.

    \b
    $ kizuna flags on maintenance --note "database upgrade"
    $ kizuna flags rollout new-ui 25%
    $ kizuna flags ls
    """


@flags.command("ls")
@click.argument("pattern", default="*")
@json_option
@click.pass_obj
def list_flags(invocation: Invocation, pattern: str, as_json: bool) -> None:
    """List the flags that are set, or those that fit a pattern, and who changed them when, if that is known.

    \b
    $ kizuna flags ls
    $ kizuna flags ls "debug:*" --json | jq .value
    """
    rows = with_flags(
        invocation.settings, lambda values: listed(values, WORDS, pattern, with_type=False, as_json=as_json)
    )
    show(rows, as_json=as_json)
    if not rows:
        say("Nothing is set.")


@flags.command()
@click.argument("name")
@json_option
@click.pass_obj
def get(invocation: Invocation, name: str, as_json: bool) -> None:
    """Print on, off, or the part of all for whom it is on. Ends with exit code 3 if it is not set.

    \b
    $ kizuna flags get maintenance
    """
    percent = with_flags(invocation.settings, lambda values: values.read(name))
    if as_json:
        show({"name": name, "value": _word(percent), "percent": percent}, as_json=True)
    else:
        put(_word(percent))


@flags.command()
@click.argument("name")
@click.option("--of", metavar="WHOM", help="A user, say, if the flag is on for a part of them.")
@click.option("--default", type=click.Choice(["on", "off"]), default="off", show_default=True, help="If it is not set.")
@click.pass_context
def check(ctx: click.Context, name: str, of: str | None, default: str) -> None:
    """Print on or off, and end with exit code 0 or 1: for scripts.

    \b
    $ kizuna flags check maintenance && exit
    $ kizuna flags check new-ui --of user-7
    """
    invocation: Invocation = ctx.obj
    is_on = with_flags(invocation.settings, lambda values: values.check(name, of=of, default=default == "on"))
    put("on" if is_on else "off")
    if not is_on:
        ctx.exit(FAILURE)


@flags.command("set")
@click.argument("name")
@click.argument("value")
@expect_option
@expect_unset_option
@note_option
@click.pass_obj
def set_flag(invocation: Invocation, name: str, value: str, expect: str | None, expect_unset: bool, note: str) -> None:
    """Set a flag to on, off, or a percentage.

    \b
    $ kizuna flags set new-ui 50% --expect 25%
    """
    _set(invocation, name, value, note, expected_of(expect, str, unset=expect_unset))


@flags.command()
@click.argument("name")
@note_option
@click.pass_obj
def on(invocation: Invocation, name: str, note: str) -> None:
    """Turn a flag on.

    \b
    $ kizuna flags on maintenance --note "database upgrade"
    """
    _set(invocation, name, "true", note)


@flags.command()
@click.argument("name")
@note_option
@click.pass_obj
def off(invocation: Invocation, name: str, note: str) -> None:
    """Turn a flag off.

    \b
    $ kizuna flags off maintenance
    """
    _set(invocation, name, "false", note)


@flags.command()
@click.argument("name")
@click.argument("part", metavar="PERCENT%")
@note_option
@click.pass_obj
def rollout(invocation: Invocation, name: str, part: str, note: str) -> None:
    """Turn a flag on for a part of all. With a larger part, those who have it keep it.

    \b
    $ kizuna flags rollout new-ui 25%
    """
    _set(invocation, name, f"{part.removesuffix('%').strip()}%", note)


@flags.command()
@click.argument("name")
@expect_option
@note_option
@click.pass_obj
def unset(invocation: Invocation, name: str, expect: str | None, note: str) -> None:
    """Remove a flag: programs go back to their default. Its history stays.

    \b
    $ kizuna flags unset new-ui
    """
    expected = expected_of(expect, str)
    changed = with_flags(invocation.settings, lambda values: values.unset(name, expected=expected, note=note))
    tell(changed, name, "not set")


@flags.command()
@click.argument("name")
@json_option
@click.pass_obj
def history(invocation: Invocation, name: str, as_json: bool) -> None:
    """Show the last changes of a flag, the newest first: a hundred are kept of those made through kizuna.

    \b
    $ kizuna flags history new-ui
    """
    rows = with_flags(invocation.settings, lambda values: past(values, WORDS, name, as_json=as_json))
    show(rows, as_json=as_json)
    if not rows:
        say(f"{name} was never changed through kizuna.")


@flags.command()
@click.argument("name")
@click.option("--to", metavar="CHANGE", help="Make it what it was after this change, as `history` names it.")
@note_option
@click.pass_obj
def revert(invocation: Invocation, name: str, to: str | None, note: str) -> None:
    """Undo the last change of a flag; or go back to how it was after an earlier one.

    \b
    $ kizuna flags revert new-ui
    """
    changed, now = with_flags(invocation.settings, lambda values: reverted(values, name, to, note))
    tell(changed, name, "not set" if now is None else _word(now))


@flags.command()
@click.argument("pattern", default="*")
@most_option
@json_option
@click.pass_obj
def watch(invocation: Invocation, pattern: str, most: int | None, as_json: bool) -> None:
    """Print every change from now on, until Ctrl-C: one line each.

    \b
    $ kizuna flags watch
    """
    with_flags(invocation.settings, lambda values: watched(values, WORDS, pattern, most, as_json=as_json))


def _set(invocation: Invocation, name: str, value: str, note: str, expected: Any = None) -> None:
    from kizuna.coordination.flags import percentage
    from kizuna.coordination.values.live_values import ANYTHING

    wanted = ANYTHING if expected is None else expected
    changed = with_flags(invocation.settings, lambda values: values.set(name, value, expected=wanted, note=note))
    tell(changed, name, _word(percentage(name, value)))


def _word(percent: float) -> str:
    from kizuna.coordination.flags import shown

    return shown(percent)


def _of_raw(raw: bytes) -> object:
    """What cannot be read is shown as it stands."""
    from kizuna.coordination.flags import percentage
    from kizuna.errors import WrongValue

    text = raw.decode(errors="backslashreplace")
    try:
        return _word(percentage("", text))
    except WrongValue:
        return text


WORDS = Words(of_raw=_of_raw, of_value=_word, for_people=str)
