"""`kizuna queues dead`: tasks that were given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.connecting import looking
from kizuna.cli.output import json_option, moment, say, show
from kizuna.cli.queues.payloads import group_option
from kizuna.cli.queues.tasks import facts_of

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.coordination.queues.tasks import TaskStatus


@click.group()
def dead() -> None:
    """Look after tasks that were given up.

    They are kept for `kept.dead_task_s`.

    \b
    $ kizuna queues dead ls --group images
    $ kizuna queues dead requeue --all --group images
    """


@dead.command("ls")
@group_option
@click.option("--most", type=click.IntRange(1), default=100, show_default=True, help="Only so many of the latest.")
@json_option
@click.pass_obj
def list_dead(invocation: Invocation, group: str, most: int, as_json: bool) -> None:
    """Show the tasks that were given up, the latest first, and why.

    \b
    $ kizuna queues dead ls --group images
    $ kizuna queues dead ls --group images --json | jq -r .reason | sort | uniq -c
    """
    found = looking(invocation, lambda k: k.queue(group).dead(most))
    show([facts_of(status) if as_json else for_people(status) for status in found], as_json=as_json)
    if not found:
        say(f"No task of group {group} was given up.")
    elif len(found) == most:
        say("There may be more; --most shows them.")


def for_people(status: TaskStatus) -> dict[str, Any]:
    return {
        "id": status.id,
        "name": status.name,
        "pushed": moment(status.pushed_at),
        "failures": status.failures,
        "crashes": status.crashes,
        "reason": status.reason,
    }


@dead.command()
@click.argument("task_ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="All of the group.")
@group_option
@click.pass_obj
def requeue(invocation: Invocation, task_ids: tuple[str, ...], every: bool, group: str) -> None:
    """Try tasks that were given up again, with fresh counts. Exit code 3 if one that is named was not given up.

    \b
    $ kizuna queues dead requeue 5f3a --group images
    $ kizuna queues dead requeue --all --group images
    """
    check_named(task_ids, every=every)

    async def ask(k: Kizuna) -> int:
        queue = k.queue(group)
        return sum([await queue.requeue(id_) for id_ in (task_ids or [None])])

    say(f"Requeued: {looking(invocation, ask)}.")


@dead.command()
@click.argument("task_ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="All of the group.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@group_option
@click.pass_obj
def purge(invocation: Invocation, task_ids: tuple[str, ...], every: bool, yes: bool, group: str) -> None:
    """Forget tasks that were given up. Exit code 3 if one that is named was not given up.

    \b
    $ kizuna queues dead purge 5f3a --group images
    $ kizuna queues dead purge --all --yes --group images
    """
    check_named(task_ids, every=every)
    if every and not yes:
        number = looking(invocation, lambda k: k.queue(group).depth()).dead
        click.confirm(f"Forget all {number} tasks of group {group} that were given up?", abort=True, err=True)

    async def ask(k: Kizuna) -> int:
        queue = k.queue(group)
        return sum([await queue.drop(id_) for id_ in (task_ids or [None])])

    say(f"Forgotten: {looking(invocation, ask)}.")


def check_named(task_ids: tuple[str, ...], *, every: bool) -> None:
    if bool(task_ids) == every:
        raise click.UsageError("name the tasks, or say --all")
