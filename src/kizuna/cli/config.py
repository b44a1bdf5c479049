"""`kizuna config`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

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
    with_config,
)
from kizuna.cli.output import json_option, put, say, show

if TYPE_CHECKING:
    from kizuna.cli import Invocation


@click.group()
def config() -> None:
    """Read, change and watch values that programs follow.

    Programs see a change within a second. A value is JSON; a word that is none is taken as text.

    \b
    $ kizuna config set claude:timeout 45 --note "slow today"
    $ kizuna config ls
    $ kizuna config revert claude:timeout
    """


@config.command("ls")
@click.argument("pattern", default="*")
@json_option
@click.pass_obj
def list_values(invocation: Invocation, pattern: str, as_json: bool) -> None:
    """List what is set, or what fits a pattern: value, type, and who changed it when, if that is known.

    \b
    $ kizuna config ls
    $ kizuna config ls "claude:*" --json | jq .value
    """
    rows = with_config(
        invocation.settings, lambda values: listed(values, WORDS, pattern, with_type=True, as_json=as_json)
    )
    show(rows, as_json=as_json)
    if not rows:
        say("Nothing is set.")


@config.command()
@click.argument("name")
@json_option
@click.pass_obj
def get(invocation: Invocation, name: str, as_json: bool) -> None:
    """Print a value as JSON. Ends with exit code 3 if it is not set.

    \b
    $ kizuna config get claude:timeout
    """
    value = with_config(invocation.settings, lambda values: values.read(name))
    if as_json:
        show({"name": name, "value": value}, as_json=True)
    else:
        put(_json(value))


# So that -5 is a value.
@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("value")
@expect_option
@expect_unset_option
@note_option
@click.pass_obj
def set_value(invocation: Invocation, name: str, value: str, expect: str | None, expect_unset: bool, note: str) -> None:
    """Change a value for everybody. To set text that looks like JSON, quote it twice: '"30"'.

    \b
    $ kizuna config set claude:timeout 45
    $ kizuna config set claude:timeout 60 --expect 45 --note "still slow"
    $ kizuna config set github:labels '["bug", "help wanted"]'
    """
    new, expected = _read(value), expected_of(expect, _read, unset=expect_unset)
    changed = with_config(invocation.settings, lambda values: values.set(name, new, expected=expected, note=note))
    tell(changed, name, _json(new))


@config.command()
@click.argument("name")
@expect_option
@note_option
@click.pass_obj
def unset(invocation: Invocation, name: str, expect: str | None, note: str) -> None:
    """Remove a value: programs go back to their default. Its history stays.

    \b
    $ kizuna config unset claude:timeout
    """
    expected = expected_of(expect, _read)
    changed = with_config(invocation.settings, lambda values: values.unset(name, expected=expected, note=note))
    tell(changed, name, "not set")


@config.command()
@click.argument("name")
@json_option
@click.pass_obj
def history(invocation: Invocation, name: str, as_json: bool) -> None:
    """Show the last changes of a value, the newest first: a hundred are kept of those made through kizuna.

    \b
    $ kizuna config history claude:timeout
    """
    rows = with_config(invocation.settings, lambda values: past(values, WORDS, name, as_json=as_json))
    show(rows, as_json=as_json)
    if not rows:
        say(f"{name} was never changed through kizuna.")


@config.command()
@click.argument("name")
@click.option("--to", metavar="CHANGE", help="Make it what it was after this change, as `history` names it.")
@note_option
@click.pass_obj
def revert(invocation: Invocation, name: str, to: str | None, note: str) -> None:
    """Undo the last change of a value; or go back to how it was after an earlier one.

    \b
    $ kizuna config revert claude:timeout
    $ kizuna config revert claude:timeout --to 1750291200000-0
    """
    changed, now = with_config(invocation.settings, lambda values: reverted(values, name, to, note))
    tell(changed, name, "not set" if now is None else _json(now))


@config.command()
@click.argument("pattern", default="*")
@most_option
@json_option
@click.pass_obj
def watch(invocation: Invocation, pattern: str, most: int | None, as_json: bool) -> None:
    """Print every change from now on, until Ctrl-C: one line each.

    \b
    $ kizuna config watch
    $ kizuna config watch "claude:*" --json | jq .new
    """
    with_config(invocation.settings, lambda values: watched(values, WORDS, pattern, most, as_json=as_json))


def _read(text: str) -> object:
    """JSON, or else text; but what begins like a list or an object, and is none, is a slip of the pen."""
    from kizuna.coordination.values.history import plain

    value = plain(text.encode(errors="surrogateescape"))
    if isinstance(value, str) and text.startswith(("{", "[")):
        raise click.UsageError(f"{text} begins like JSON, and is none; to set it as text, quote it twice")
    return value


def _of_raw(raw: bytes) -> object:
    from kizuna.coordination.values.history import plain

    return plain(raw)


def _json(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


WORDS = Words(of_raw=_of_raw, of_value=lambda value: value, for_people=_json)
