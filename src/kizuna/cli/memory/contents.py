"""What is remembered, on the command line: how contents are given and shown, and how long something has to live."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.output import as_json_text, put, say
from kizuna.cli.readable import in_one_line, text_or_stdin

if TYPE_CHECKING:
    from kizuna.cli.output import Row
    from kizuna.memory.item import Item

_SOON_S = 60
_LONGEST_CELL = 60
_LONGEST_LINE = 10_000


def given_content(text: str | None, *, is_text: bool, is_json: bool) -> Any:
    """The argument; or what comes on standard input, for `-`, and for no argument where that is no terminal."""
    if text is None and sys.stdin.isatty():
        raise click.UsageError("there is nothing to remember; give CONTENT, or - and something on standard input")
    raw = text_or_stdin("-" if text is None else text)
    return value_of(raw, is_text=is_text, is_json=is_json)


def value_of(raw: bytes, *, is_text: bool = False, is_json: bool = False) -> Any:
    """What it says if it is JSON, else the text itself, unless one of the two is wanted."""
    from kizuna.errors import Undecodable
    from kizuna.memory.json_text import decoded

    if is_text:
        return text_of(raw)
    try:
        return decoded(raw)
    except Undecodable as error:
        if is_json:
            raise click.BadParameter(f"this is no JSON: {error.reason}", param_hint="CONTENT") from None
        return text_of(raw)


def text_of(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise click.BadParameter(
            "these bytes are neither JSON nor text in UTF-8; encode them, in base64 say", param_hint="CONTENT"
        ) from None


def put_content(content: Any) -> None:
    """Text as it is; anything else as JSON in one line."""
    if isinstance(content, str):
        raw = content.encode(errors="surrogatepass")
        put(raw, nl=sys.stdout.isatty() and not raw.endswith(b"\n"))
    else:
        put(as_json_text(content))


def put_readable(content: Any) -> None:
    """For people: JSON over several lines, and nothing that does something to the terminal."""
    text = content if isinstance(content, str) else as_json_text(content, indent=2)
    for line in text.splitlines():
        put(safe(line, _LONGEST_LINE))


def safe(text: str, most: int = _LONGEST_CELL) -> str:
    """In one line, and harmless: anybody may have written it."""
    return in_one_line(text.encode(errors="surrogatepass"), most)


def excerpt(item: Item, most: int) -> str:
    """The first of the content, for a table; what is sealed is not opened for that."""
    return click.style("(sealed)", dim=True) if item.is_sealed else in_one_line(item.raw_content, most)


def as_data(item: Item) -> Row:
    """Everything, for JSON; what cannot be read is empty, and it is said why."""
    shown, problem = item.as_far_as_readable()
    return shown | ({"unreadable": problem} if problem else {})


def age(since: float, now: float) -> str:
    from kizuna.cli.processes import ago

    return ago(max(now - since, 0.0))


def ends_in(at: float, now: float) -> str:
    """What ends within a minute is marked."""
    left_s = max(at - now, 0.0)
    shown = age(now, now + left_s)
    return click.style(shown, fg="yellow") if left_s < _SOON_S else shown


def tell_of_backup(*, from_backup: bool) -> None:
    if from_backup:
        say("The server is away; this happened in the copy on this machine, and will there when it is back.")
