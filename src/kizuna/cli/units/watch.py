"""`kizuna units watch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.connecting import connected
from kizuna.cli.options import seconds_option
from kizuna.cli.output import json_option, put, say, show
from kizuna.cli.units.traffic import as_data, as_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.units.listening import Listening, Message
    from kizuna.units.pairing import Fact, Selection
    from kizuna.units.paths import Path

STATUSES = ("req", "res", "err", "keep")
WATCHER = "watch"


def read_statuses(_: click.Context, __: click.Parameter, given: str) -> frozenset[str]:
    named = frozenset(filter(None, given.lower().replace(" ", "").split(",")))
    if unknown := sorted(named.difference(STATUSES)):
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(STATUSES)}")
    return named


@click.command()
@click.argument("pattern", default="*")
@click.option(
    "--unit", "units", multiple=True, metavar="NAME", help="Only what this unit says or is asked; repeatable."
)
@click.option(
    "--status", "statuses", default="", callback=read_statuses, metavar="STATUS,…", help="Only req, res, err or keep."
)
@click.option("--id", "id_", default="", metavar="ID", help="Only ids that begin like this.")
@click.option("--grep", "text", default="", metavar="TEXT", help="Only values that have this text in them.")
@click.option("--all", "everything", is_flag=True, help="Claims, and what units tell about themselves, too.")
@click.option("--count", "most", type=click.IntRange(1), metavar="N", help="End after so many messages.")
@seconds_option("--for", "End after this time.")
@json_option
@click.pass_obj
def watch(
    invocation: Invocation,
    pattern: str,
    units: tuple[str, ...],
    statuses: frozenset[str],
    id_: str,
    text: str,
    everything: bool,
    most: int | None,
    for_s: float | None,
    as_json: bool,
) -> None:
    """Show what is said, as it is said: requests and replies with the time between, and state that is kept.

    PATTERN is a glob for paths below the root, `*/req/*`; the name of a unit is all of its space. Each line ends with
    the size of the value, and as much of it as fits. Only looks: others do not see who watches.

    \b
    $ kizuna units watch
    $ kizuna units watch --unit detector --status err
    $ kizuna units watch --for 60 --json | jq 'select(.after_ms > 100)'
    """
    from kizuna.units.pairing import Selection
    from kizuna.units.paths import lowered

    names = frozenset(map(lowered, units))
    selection = Selection(names, statuses, lowered(id_), text.encode(errors="surrogateescape"), everything)
    connected(invocation, lambda k: follow(k, pattern, selection, most, for_s, as_json=as_json))


async def follow(
    k: Kizuna, pattern: str, selection: Selection, most: int | None, for_s: float | None, *, as_json: bool
) -> None:
    import asyncio

    k.units.announcing.is_silent = True
    async with k.unit(WATCHER).listen(path_pattern(pattern, k.units.root)) as messages:
        try:
            async with asyncio.timeout(for_s) as limit:
                await show_all(k, messages, selection, most, as_json=as_json)
        except TimeoutError:
            if not limit.expired():
                raise


async def show_all(k: Kizuna, messages: Listening, selection: Selection, most: int | None, *, as_json: bool) -> None:
    from kizuna.units.pairing import Pairing

    pairing, left = Pairing(), most
    for message in await what_is_there(messages):
        # That was said before.
        pairing.remember(path_of(message))
    say("Watching; Ctrl-C ends it.")
    async for batch in in_order(k, messages):
        told = [(pairing.feed(path_of(message), message.at_s, found=message.found), message) for message in batch]
        wanted = [(fact, message) for fact, message in told if selection.takes(fact, message.raw)][:left]
        show_batch(wanted, as_json=as_json)
        left = None if left is None else left - len(wanted)
        if left == 0:
            return


def show_batch(told: list[tuple[Fact, Message]], *, as_json: bool) -> None:
    """In one go: there may be thousands a second."""
    if as_json:
        show([as_data(fact, message) for fact, message in told], as_json=True)
    elif told:
        put("\n".join(as_line(fact, message) for fact, message in told))


async def in_order(k: Kizuna, messages: Listening) -> AsyncIterator[list[Message]]:
    """What came since the last time. What was found by looking was found in no order: then requests come before what is
    written about them."""
    counts = k.units.counts_of(WATCHER)
    told = (counts.resyncs, "")
    while True:
        told = tell_of_gaps(messages, counts.resyncs, told, k.settings.units.poll_every_s)
        # Not for ever: that nothing is announced any more is to be said even if nothing comes.
        message = await messages.next(timeout_s=1.0)
        if message is not None:
            yield sorted([message, *await what_is_there(messages)], key=turn)


async def what_is_there(messages: Listening) -> list[Message]:
    """Without waiting for more."""
    found = []
    while (message := await messages.next(timeout_s=0)) is not None:
        found.append(message)
    return found


def path_of(message: Message) -> Path:
    from kizuna.units.paths import Path

    return Path(message.unit, message.status, message.id)


def turn(message: Message) -> int:
    return {"req": 0, "keep": 1}.get(message.status, 2) if message.found else 2


def tell_of_gaps(messages: Listening, looks: int, told: tuple[int, str], every_s: float) -> tuple[int, str]:
    """Say what changed since it was said before: how often it was looked for messages, and why."""
    polling = str(messages.polling or "")
    if polling and not told[1]:
        say(f"Looking every {every_s:g} s; what comes and goes in between is not seen, and times are rough. {polling}")
    elif not polling and looks != told[0]:
        say("Messages may have been missed; those that are still there are shown.")
    return looks, polling


def path_pattern(pattern: str, root: str) -> str:
    """What is missing behind it is everything."""
    parts = pattern.removeprefix(f"{root}/").split("/")
    return "/".join([root, *parts, *["*"] * (3 - len(parts))])
