"""Groups, payloads and results, as the commands of `kizuna queues` take and show them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.coordination.queues import Queue

group_option = click.option("--group", default="default", show_default=True, help="The group of the task.")
"""Gives a command the argument `group`."""


def raw_queue(k: Kizuna, group: str) -> Queue:
    """Payloads and results as they are: it is not for us to understand them."""
    from kizuna.codecs import RAW

    return k.queue(group, codec=RAW)


def text_or_stdin(text: str) -> bytes:
    if text != "-":
        return text.encode()
    return sys.stdin.buffer.read()


def check_json(raw: bytes, what: str) -> None:
    """A usage error for what no program that expects JSON could read."""
    import msgspec

    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = raw[:40].decode(errors="backslashreplace")
        hint = "quote it twice if it is text ('\"…\"'), or say --raw to send it as it is"
        raise click.UsageError(f"the {what} {shown!r} is not JSON ({error}); {hint}") from None


def readable(raw: bytes) -> Any:
    """For JSON output: JSON as what it says, anything else as text."""
    import msgspec

    try:
        return msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return as_text(raw)


def as_text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
