"""Groups, payloads and results, as the commands of `kizuna queues` take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.readable import as_text

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.coordination.queues import Queue

group_option = click.option("--group", default="default", show_default=True, help="The group of the task.")
"""Gives a command the argument `group`."""


def raw_queue(k: Kizuna, group: str) -> Queue:
    """Payloads and results as they are: it is not for us to understand them."""
    from kizuna.codecs import RAW

    return k.queue(group, codec=RAW)


def check_json(raw: bytes, what: str) -> None:
    """A usage error for what no program that expects JSON could read."""
    import msgspec

    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "quote it twice if it is text ('\"…\"'), or say --raw to send it as it is"
        raise click.UsageError(f"the {what} {as_text(raw[:40])!r} is not JSON ({error}); {hint}") from None
