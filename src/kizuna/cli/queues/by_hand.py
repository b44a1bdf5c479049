"""`kizuna queues pop`, `ack`, `fail` and `renew`: a worker out of shell commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.connecting import looking
from kizuna.cli.exit_codes import NOT_FOUND
from kizuna.cli.options import seconds_option
from kizuna.cli.output import json_option, say, show
from kizuna.cli.queues.payloads import check_json, group_option, raw_queue
from kizuna.cli.readable import as_text, readable, text_or_stdin

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation

token_option = click.option("--token", required=True, help="What `pop` gave with the task.")
lease_option = seconds_option("--lease", "How long it is ours.")


@click.command()
@group_option
@lease_option
@seconds_option("--wait", "Wait so long for one.", default=0.0, may_be_zero=True)
@json_option
@click.pass_context
def pop(ctx: click.Context, group: str, lease_s: float | None, wait_s: float, as_json: bool) -> None:
    """Take a task for a while. Exit code 3 if there is none.

    It is ours for the time of the lease (`queues.lease_s`, unless --lease says more); then others get it, unless `ack`,
    `fail` or `renew` came before.

    \b
    $ kizuna queues pop --group images --lease 600
    $ task=$(kizuna queues pop --group images --json)
    """
    delivery = looking(ctx.obj, lambda k: raw_queue(k, group).pop(lease_s=lease_s, wait_s=wait_s))
    if delivery is None:
        say(f"No task of group {group} waits.")
        ctx.exit(NOT_FOUND)
    facts = {
        "id": delivery.id,
        "token": delivery.token,
        "name": delivery.name,
        "attempt": delivery.attempt,
        "priority": delivery.priority,
    }
    show(facts | {"payload": readable(delivery.raw) if as_json else as_text(delivery.raw)}, as_json=as_json)


@click.command()
@click.argument("task_id", metavar="ID")
@token_option
@group_option
@click.option("--result", "text", default="", help="What it returned, as JSON; `-` reads it from the input.")
@click.option("--raw", is_flag=True, help="The result need not be JSON.")
@click.pass_obj
def ack(invocation: Invocation, task_id: str, token: str, group: str, text: str, raw: bool) -> None:
    """Say that a task is done, with its result. Exit code 4 if it was no longer ours: then nothing has changed.

    \b
    $ kizuna queues ack 5f3a --token host-12-ab.p1-c0ffee/7 --group images --result '{"width": 100}'
    """
    result = text_or_stdin(text)
    if result and not raw:
        check_json(result, "result")
    looking(invocation, lambda k: raw_queue(k, group).settle(task_id, token, result))
    say(f"Task {task_id} is done.")


@click.command()
@click.argument("task_id", metavar="ID")
@token_option
@group_option
@click.option("--reason", required=True, help="For people: why it could not be done.")
@click.option("--give-up", is_flag=True, help="Do not try it again.")
@seconds_option("--retry-in", "Try it again after that time.", may_be_zero=True)
@click.pass_obj
def fail(
    invocation: Invocation,
    task_id: str,
    token: str,
    group: str,
    reason: str,
    give_up: bool,
    retry_in_s: float | None,
) -> None:
    """Say that a task could not be done. Exit code 4 if it was no longer ours: then nothing has changed.

    When it is tried again, the settings say (`queues.retry_first_s` and so on), unless --retry-in does.

    \b
    $ kizuna queues fail 5f3a --token host-12-ab.p1-c0ffee/7 --group images --reason "no such file"
    $ kizuna queues fail 5f3a --token host-12-ab.p1-c0ffee/7 --reason "too many requests" --retry-in 60
    """
    if give_up and retry_in_s is not None:
        raise click.UsageError("--give-up and --retry-in contradict each other")

    async def settle(k: Kizuna) -> str:
        queue = raw_queue(k, group)
        return await queue.settle(task_id, token, error=reason, retry=not give_up, retry_in_s=retry_in_s)

    state = looking(invocation, settle)
    say(f"Task {task_id} is given up." if state == "dead" else f"Task {task_id} will be tried again.")


@click.command()
@click.argument("task_id", metavar="ID")
@token_option
@group_option
@lease_option
@click.pass_obj
def renew(invocation: Invocation, task_id: str, token: str, group: str, lease_s: float | None) -> None:
    """Let the lease of a task begin anew. Exit code 4 if it has ended.

    \b
    $ kizuna queues renew 5f3a --token host-12-ab.p1-c0ffee/7 --group images --lease 600
    """
    looking(invocation, lambda k: raw_queue(k, group).renew(task_id, token, lease_s=lease_s))
    say(f"Task {task_id} is still ours.")
