"""`kizuna memory watch`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from kizuna.cli.memory.contents import safe
from kizuna.cli.memory.reading import remembering
from kizuna.cli.options import seconds_option
from kizuna.cli.output import Row, json_option, put, say, show
from kizuna.cli.watching import count_option, show_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.memory.events import Event

COLOURS = {"created": "green", "updated": "cyan", "deleted": "red", "expired": "yellow"}
KINDS = tuple(f"{what}:{happened}" for what in ("item", "ctx") for happened in COLOURS)
_WIDEST = max(map(len, KINDS))
_AT_ONCE = 1000
# What the kind of the event says already.
_PLAIN_REASONS = ("deleted", "time")


class Wanted(NamedTuple):
    kinds: tuple[str, ...]
    context: str | None
    type: str | None

    def takes(self, event: Event) -> bool:
        return event.kind in self.kinds and self.context in (None, event.context) and self.type in (None, event.type)


def read_kinds(_: click.Context, __: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    """`item:created`; or a half of it, for all that have that half. None are all."""
    for word in given:
        if not any(word in (kind, *kind.split(":")) for kind in KINDS):
            raise click.BadParameter(f"{word!r} is none of {', '.join(KINDS)}, nor a half of one")
    return tuple(kind for kind in KINDS if not given or {kind, *kind.split(":")}.intersection(given))


@click.command()
@click.argument("kinds", nargs=-1, callback=read_kinds, metavar="[KIND]...")
@click.option("--context", metavar="CONTEXT", help="Only of this context.")
@click.option("--type", "type_", metavar="TYPE", help="Only of this type.")
@click.option(
    "--since",
    metavar="CURSOR",
    help="From the durable feed: what came after this event, and then on. 0: all that it has; $: from now on.",
)
@click.option("--no-wait", is_flag=True, help="With --since: end when all that is there was printed.")
@count_option
@seconds_option("--for", "End after this time.")
@json_option
@click.pass_obj
def watch(
    invocation: Invocation,
    kinds: tuple[str, ...],
    context: str | None,
    type_: str | None,
    since: str | None,
    no_wait: bool,
    most: int | None,
    for_s: float | None,
    as_json: bool,
) -> None:
    """Print what happens to items and contexts, as it happens.

    One line each, until Ctrl-C. KIND is one of item:created, item:updated, item:deleted, item:expired, and the same of
    ctx; `expired` is both of these, `item` all four; none is everything. What happens while the connection is
    interrupted is not printed, which is said.

    With --since nothing is missed: the feed keeps the last `memory.feed_length` events, with the reason why something
    ended, and it is said from where to read on.

    \b
    $ kizuna memory watch
    $ kizuna memory watch expired --context trip-7
    $ kizuna memory watch --since 0 --no-wait --json | jq 'select(.reason == "evicted")'
    """
    if no_wait and since is None:
        raise click.UsageError("--no-wait goes with --since")
    wanted = Wanted(kinds, context, type_)

    async def follow(k: Kizuna) -> None:
        # Somebody has to notice what ends, and there may be nobody else.
        await k.memory.begin()
        if since is None:
            await show_until(watched(k, wanted), partial(show_event, as_json=as_json), most, for_s)
        else:
            await read_on(k, since, wanted, most, for_s, waits=not no_wait, as_json=as_json)

    remembering(invocation, follow)


async def watched(k: Kizuna, wanted: Wanted) -> AsyncIterator[Event]:
    from kizuna.store.events.feeds import LookAgain

    async with k.memory.watch(*wanted.kinds, context=wanted.context, type=wanted.type) as events:
        say("Watching; Ctrl-C ends it.")
        async for event in events:
            if isinstance(event, LookAgain):
                say(f"Events may have been missed: {event.reason}")
            else:
                yield event


async def read_on(
    k: Kizuna, since: str, wanted: Wanted, most: int | None, for_s: float | None, *, waits: bool, as_json: bool
) -> None:
    feed = Feed(k, since, wanted, waits=waits)
    try:
        await show_until(feed.events(), partial(show_event, as_json=as_json), most, for_s)
    finally:
        if feed.cursor != since:
            say(f"Read on with --since {feed.cursor}.")


class Feed:
    """The durable feed from a cursor on; `cursor` moves along, over what is not wanted as well."""

    def __init__(self, k: Kizuna, cursor: str, wanted: Wanted, *, waits: bool) -> None:
        self._memory, self.cursor, self._wanted, self._waits = k.memory, cursor, wanted, waits

    async def events(self) -> AsyncIterator[Event]:
        async for event in self._followed() if self._waits else self._there_now():
            self.cursor = event.cursor
            if self._wanted.takes(event):
                yield event

    async def _followed(self) -> AsyncIterator[Event]:
        say("Watching; Ctrl-C ends it.")
        async for event in self._memory.follow(self.cursor):
            yield event

    async def _there_now(self) -> AsyncIterator[Event]:
        found = await self._memory.events_since(self.cursor, limit=_AT_ONCE)
        while found.events:
            for event in found.events:
                yield event
            found = await self._memory.events_since(found.cursor, limit=_AT_ONCE)


def show_event(event: Event, *, as_json: bool) -> None:
    if as_json:
        show(as_data(event), as_json=True)
    else:
        put(as_line(event))


def as_data(event: Event) -> Row:
    return {
        "at": event.at,
        "kind": event.kind,
        "id": event.id,
        "type": event.type,
        "context": event.context,
        "version": event.version or None,
        "reason": event.reason or None,
        "cursor": event.cursor or None,
    }


def as_line(event: Event) -> str:
    from datetime import datetime

    what, _, happened = event.kind.partition(":")
    at = f"{datetime.fromtimestamp(event.at).astimezone():%H:%M:%S.%f}"[:-3]
    where = f" in {safe(event.context)}" if what == "item" else ""
    version = f", version {event.version}" if event.version else ""
    why = f", {safe(event.reason)}" if event.reason not in ("", *_PLAIN_REASONS) else ""
    kind = click.style(event.kind.ljust(_WIDEST), fg=COLOURS.get(happened))
    return f"{click.style(at, dim=True)} {kind}  {safe(event.id)}  {safe(event.type)}{where}{version}{why}"
