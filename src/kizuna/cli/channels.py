"""`kizuna channels`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.output import Row, json_option, put, say, show

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from kizuna.cli import Invocation
    from kizuna.coordination.channels import Garbled, Message, Missed, Subscription
    from kizuna.coordination.channels.log_readers import Entry, Reader
    from kizuna.settings import Settings


@click.group()
def channels() -> None:
    """Publish messages, and follow them.

    A durable channel keeps its last messages for readers that are away; each reader has its own place in it.

    \b
    $ kizuna channels listen "events:*"
    $ kizuna channels publish mirin:requests '{"issue": 123}'
    $ kizuna channels read mirin:requests --reader billing --follow
    """


@channels.command()
@click.argument("name")
@click.argument("message", default="-")
@click.option("--durable", is_flag=True, help="Keep it for readers that are not there now.")
@click.option("--keep", type=click.IntRange(1), default=10_000, show_default=True, help="Messages kept if --durable.")
@click.option("--id", "message_id", default="", help="Makes a repetition harmless; only with --durable.")
@json_option
@click.pass_obj
def publish(
    invocation: Invocation, name: str, message: str, durable: bool, keep: int, message_id: str, as_json: bool
) -> None:
    """Publish a message, just as it is written; with `-`, each line of the input.

    Kizuna's own channels hold JSON, unless a program chose something else.

    \b
    $ kizuna channels publish mirin:requests '{"issue": 123}'
    $ kizuna channels publish mirin:requests --durable --id order-7 '{"issue": 123}'
    $ tail -f app.log | kizuna channels publish logs:app -
    """
    import sys

    from kizuna.loop import run

    if message_id and (not durable or message == "-"):
        raise click.UsageError("--id is for one message, and only with --durable")
    lines: Iterable[str] = sys.stdin if message == "-" else [message]
    messages = (line.rstrip("\n") for line in lines)
    run(send(invocation.settings, name, messages, keep if durable else None, message_id, as_json=as_json))


@channels.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--most", type=click.IntRange(1), help="End after so many messages.")
@json_option
@click.pass_obj
def listen(invocation: Invocation, names: tuple[str, ...], most: int | None, as_json: bool) -> None:
    """Print what is published from now on, until Ctrl-C. A name may be a glob.

    \b
    $ kizuna channels listen mirin:requests
    $ kizuna channels listen "events:*" --json | jq .message
    """
    from kizuna.loop import run

    run(follow(invocation.settings, names, most, as_json=as_json))


@channels.command()
@click.argument("name")
@click.option("--reader", required=True, help="Whose place in the channel is used, and moved.")
@click.option(
    "--from", "start", default="now", show_default=True, help="Where a new reader starts: now, beginning, or an entry."
)
@click.option("--follow", "following", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--most", type=click.IntRange(1), help="End after so many messages.")
@json_option
@click.pass_obj
def read(
    invocation: Invocation, name: str, reader: str, start: str, following: bool, most: int | None, as_json: bool
) -> None:
    """Print what a reader of a durable channel has not done yet; what was printed is done.

    If messages ended before they were read, that is said on stderr.

    \b
    $ kizuna channels read mirin:requests --reader audit --from beginning
    $ kizuna channels read mirin:requests --reader billing --follow --json | jq .message
    """
    from kizuna.loop import run

    run(read_on(invocation.settings, name, reader, start, most, following=following, as_json=as_json))


@channels.command("ls")
@json_option
@click.pass_obj
def list_channels(invocation: Invocation, as_json: bool) -> None:
    """List the channels that somebody listens to, and the durable ones with their readers.

    Who listens to a glob is not counted. `readers` shows how many messages each has not done yet.

    \b
    $ kizuna channels ls
    $ kizuna channels ls --json | jq 'select(.kept > 0)'
    """
    from kizuna.loop import run

    rows = run(look_at_all(invocation.settings, as_json=as_json))
    show(rows, as_json=as_json)
    if not rows:
        say("Nobody listens, and no channel is durable.")


@channels.command()
@click.argument("name")
@click.option("--keep", type=click.IntRange(1), required=True, help="How many of the newest messages stay.")
@click.pass_obj
def trim(invocation: Invocation, name: str, keep: int) -> None:
    """Let go of the oldest messages of a durable channel. Readers that have not done them are told.

    \b
    $ kizuna channels trim mirin:requests --keep 100
    """
    from kizuna.loop import run

    gone = run(cut(invocation.settings, name, keep))
    say(f"{gone} messages are gone.")


async def send(
    settings: Settings, name: str, messages: Iterable[str], keep: int | None, message_id: str, *, as_json: bool
) -> None:
    import asyncio

    from kizuna.app import connect
    from kizuna.codecs import TEXT

    lines = iter(messages)
    async with connect(settings) as k:
        # The input is read in a thread: it may come slowly, and the connection is to stay alive meanwhile.
        while (message := await asyncio.to_thread(next, lines, None)) is not None:
            if keep is None:
                heard = await k.channels.channel(name, codec=TEXT).publish(message)
                show_sent({"channel": name, "heard": heard}, as_json=as_json)
            else:
                published = await k.channels.durable(name, codec=TEXT, keep=keep).publish(message, id=message_id)
                show_sent({"channel": name, **published._asdict()}, as_json=as_json)


async def follow(settings: Settings, names: tuple[str, ...], most: int | None, *, as_json: bool) -> None:
    from contextlib import AsyncExitStack, aclosing

    from kizuna.app import connect
    from kizuna.codecs import RAW
    from kizuna.coordination.channels import Message, Missed

    async with connect(settings) as k, AsyncExitStack() as entered:
        listening = [k.channels.matching(name, codec=RAW).subscribe() for name in names]
        subscriptions = [await entered.enter_async_context(one) for one in listening]
        say("Listening; Ctrl-C ends it.")
        left = most
        async with aclosing(merged(subscriptions)) as items:
            async for item in items:
                if isinstance(item, Missed):
                    say(f"Messages may have been missed: {item.reason}")
                elif isinstance(item, Message):
                    show_message({"channel": item.channel, "message": text_of(item.value)}, as_json=as_json)
                    left = None if left is None else left - 1
                if left == 0:
                    return


async def merged(
    subscriptions: list[Subscription[bytes]],
) -> AsyncGenerator[Message[bytes] | Missed | Garbled | None, None]:
    """What comes from any of them, as it comes."""
    import asyncio

    waiting = {asyncio.create_task(subscription.next()): subscription for subscription in subscriptions}
    try:
        while True:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                subscription = waiting.pop(task)
                waiting[asyncio.create_task(subscription.next())] = subscription
                yield task.result()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


async def read_on(
    settings: Settings, name: str, reader: str, start: str, most: int | None, *, following: bool, as_json: bool
) -> None:
    from kizuna.app import connect
    from kizuna.codecs import RAW

    async with connect(settings) as k, k.channels.durable(name, codec=RAW).reader(reader, start=start) as place:
        if following:
            say("Reading; Ctrl-C ends it.")
        left, anything = most, False
        while left is None or left > 0:
            entries = await next_entries(place, following=following)
            if not entries:
                if not anything:
                    say(f"Nothing waits for {reader}.")
                return
            anything = True
            for entry in entries[:left]:
                show_entry(name, entry, as_json=as_json)
                await place.done(entry)
            left = None if left is None else left - len(entries[:left])


async def next_entries(reader: Reader[bytes], *, following: bool) -> list[Entry[bytes]]:
    """None if there are no more, and nobody wants to wait for them."""
    from kizuna.errors import MessagesGone

    while True:
        try:
            if not following:
                return await reader.look()
            return [await anext(reader)]
        except MessagesGone as gone:
            say(f"{gone}")


async def look_at_all(settings: Settings, *, as_json: bool) -> list[Row]:
    from kizuna.app import connect

    async with connect(settings) as k:
        listeners = await k.channels.active()
        logs = {log.channel: log for log in await k.channels.logs()}
    rows: list[Row] = []
    for name in sorted(listeners.keys() | logs.keys()):
        log = logs.get(name)
        readers = log.readers if log else {}
        behind = [f"{reader} ({'?' if lag is None else lag} left)" for reader, lag in sorted(readers.items())]
        row = {"channel": name, "listeners": listeners.get(name, 0), "kept": log.length if log else 0}
        rows.append({**row, "readers": readers if as_json else behind})
    return rows


async def cut(settings: Settings, name: str, keep: int) -> int:
    from kizuna.app import connect

    async with connect(settings) as k:
        return await k.channels.durable(name).trim(keep)


def show_sent(row: Row, *, as_json: bool) -> None:
    if as_json:
        show(row, as_json=True)
    else:
        place = [str(row[column]) for column in ("channel", "entry") if column in row]
        put("  ".join([*place, "published before" if row.get("repeated") else f"heard by {row['heard']}"]))


def show_entry(name: str, entry: Entry[bytes], *, as_json: bool) -> None:
    facts = {"channel": name, "entry": entry.entry, "number": entry.number, "id": entry.id}
    show_message({**facts, "message": text_of(entry.raw)}, as_json=as_json)


def show_message(row: Row, *, as_json: bool) -> None:
    if as_json:
        show(row, as_json=True)
    else:
        put("  ".join(str(row[column]) for column in ("channel", "entry", "message") if column in row))


def text_of(message: bytes) -> str:
    return message.decode(errors="backslashreplace")
