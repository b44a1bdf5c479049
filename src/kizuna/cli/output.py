"""Data for people or for machines on stdout; messages on stderr.

Colour ends up only on a terminal, and nowhere when NO_COLOR is set: click removes it otherwise.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import overload

import click

Row = Mapping[str, object]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
"""Gives a command the argument `as_json`."""


def show(data: Row | Iterable[Row], *, as_json: bool) -> None:
    """Print a record, or a table of rows that have the same columns; as JSON, one object per line."""
    if as_json:
        _show_json([data] if isinstance(data, Mapping) else data)
    elif isinstance(data, Mapping):
        _print_aligned([(name, _plain(value)) for name, value in data.items()])
    else:
        _show_table(list(data))


def put(text: str | bytes, *, nl: bool = True) -> None:
    """Write data to stdout. Every command does it here, so that a full disk gets a sentence; a closed pipe goes up
    to click, which ends quietly."""
    try:
        click.echo(text, nl=nl)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise click.ClickException(f"the output cannot be written: {os.strerror(error.errno or 0)}") from error


def say(message: str) -> None:
    """Tell the person at the terminal something that is not data."""
    click.echo(message, err=True)


@overload
def moment(seconds: float) -> str: ...
@overload
def moment(seconds: None) -> None: ...
def moment(seconds: float | None) -> str | None:
    """A time for people, in their own time zone."""
    from datetime import datetime

    return None if seconds is None else f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


def as_json_text(value: object, indent: int | None = None) -> str:
    """Text as it is, unless it cannot be written: JavaScript cuts surrogate pairs in two, and sends one half."""
    import json

    text = json.dumps(value, ensure_ascii=False, default=str, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, default=str, indent=indent)
    return text


def _show_json(rows: Iterable[Row]) -> None:
    for row in rows:
        put(as_json_text(row))


def _show_table(rows: Sequence[Row]) -> None:
    if rows:
        header = [click.style(name.replace("_", " ").upper(), bold=True) for name in rows[0]]
        _print_aligned([header, *([_plain(value) for value in row.values()] for row in rows)])


def _print_aligned(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True))
        put("  ".join(cells).rstrip())


def _plain(value: object) -> str:
    match value:
        case None | "" | [] | ():
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list() | tuple() | set():
            return ", ".join(map(_plain, value))
        case _:
            return str(value)


def _width(text: str) -> int:
    """Columns on a terminal: Japanese takes two per character, colour none."""
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(character) in "WF" else 1 for character in click.unstyle(text))
