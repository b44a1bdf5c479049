"""`kizuna queues ls`, `watch`, `pause` and `resume`: whole groups."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.connecting import looking
from kizuna.cli.output import json_option, say, show
from kizuna.cli.queues.payloads import group_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.coordination.queues import Queue
    from kizuna.coordination.queues.tasks import Minute

# Rates are over so many.
_MINUTES = 5


@click.command()
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@json_option
@click.pass_obj
def ls(invocation: Invocation, groups: tuple[str, ...], as_json: bool) -> None:
    """Show the groups: what waits, what runs, what was given up, and how fast it goes.

    OLDEST is the age of the task that waits longest; the rates are tasks a minute, over the last five.

    \b
    $ kizuna queues ls
    $ kizuna queues ls images --json | jq .dead
    """
    rows = looking(invocation, lambda k: rows_of(k, groups, as_json=as_json))
    show(rows, as_json=as_json)
    if not rows:
        say("There are no tasks, and there were none.")


@click.command()
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@json_option
@click.pass_obj
def watch(invocation: Invocation, groups: tuple[str, ...], every_s: float, as_json: bool) -> None:
    """Show the groups again and again, until Ctrl-C.

    \b
    $ kizuna queues watch
    $ kizuna queues watch images --every 5 --json >> images.jsonl
    """
    import asyncio

    async def follow(k: Kizuna) -> None:
        while True:
            rows = await rows_of(k, groups, as_json=as_json)
            if not as_json and sys.stdout.isatty():
                click.clear()
            show(rows, as_json=as_json)
            sys.stdout.flush()
            await asyncio.sleep(every_s)

    looking(invocation, follow)


@click.command()
@group_option
@click.pass_obj
def pause(invocation: Invocation, group: str) -> None:
    """Hand out no more tasks of a group, until `resume`. Those that run go on, and more can be pushed.

    \b
    $ kizuna queues pause --group images
    """
    looking(invocation, lambda k: k.queue(group).pause())
    say(f"Group {group} is paused.")


@click.command()
@group_option
@click.pass_obj
def resume(invocation: Invocation, group: str) -> None:
    """Hand out tasks of a group again.

    \b
    $ kizuna queues resume --group images
    """
    was_paused = looking(invocation, lambda k: k.queue(group).resume())
    say(f"Group {group} goes on." if was_paused else f"Group {group} was not paused.")


async def rows_of(k: Kizuna, groups: Sequence[str], *, as_json: bool) -> list[dict[str, Any]]:
    import asyncio

    names = groups or await k.queues.groups()
    facts = await asyncio.gather(*[facts_of(k.queue(name)) for name in names])
    return facts if as_json else [for_people(each) for each in facts]


async def facts_of(queue: Queue) -> dict[str, Any]:
    import asyncio

    import msgspec

    depth, oldest_s, minutes, paused, consumers = await asyncio.gather(
        queue.depth(), queue.oldest_age_s(), queue.rates(), queue.is_paused(), queue.consumers()
    )
    return {
        "group": queue.group,
        **msgspec.to_builtins(depth),
        "oldest_s": None if oldest_s is None else round(oldest_s, 3),
        **{f"{what}_per_min": per_minute(minutes, what) for what in ("pushed", "done", "failed")},
        "consumers": len(consumers),
        "paused": paused,
    }


def per_minute(minutes: list[Minute], what: str) -> float:
    """Over the last minutes, of which the present one is not over."""
    import time

    last = minutes[-_MINUTES:]
    now_s = min(max(time.time() - last[-1].at, 1), 60)
    number: int = sum(getattr(minute, what) for minute in last)
    return round(number / (_MINUTES - 1 + now_s / 60), 1)


def for_people(facts: dict[str, Any]) -> dict[str, Any]:
    from kizuna.cli.status import duration

    oldest_s = facts["oldest_s"]
    shown = facts | {"oldest": None if oldest_s is None else duration(int(oldest_s))}
    shown |= {f"{what}/min": facts[f"{what}_per_min"] for what in ("pushed", "done", "failed")}
    columns = "group high normal low delayed running dead oldest pushed/min done/min failed/min consumers paused"
    return {column: shown[column] for column in columns.split()}
