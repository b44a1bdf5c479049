"""`kizuna queues push`, `status`, `result` and `cancel`: one task, seen by who pushed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.connecting import connected, looking
from kizuna.cli.exit_codes import CONFLICT, TRY_AGAIN
from kizuna.cli.options import seconds_option
from kizuna.cli.output import json_option, moment, put, say, show
from kizuna.cli.queues.payloads import check_json, group_option, raw_queue
from kizuna.cli.readable import as_text, readable, text_or_stdin

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.coordination.queues.tasks import Task, TaskStatus

wait_option = seconds_option("--wait", "Wait so long for the result, and print it.", may_be_zero=True)


@click.command()
@click.argument("payload", default="null")
@group_option
@click.option("--name", default="", help="Which handler of a worker it is for.")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]), default="normal", show_default=True)
@click.option("--id", "task_id", help="An id of your own, which makes a repetition harmless.")
@seconds_option("--delay", "Not before then.", default=0.0, may_be_zero=True)
@click.option("--attempts", type=click.IntRange(1), help="How often it is tried; `queues.attempts` otherwise.")
@seconds_option("--timeout", "For one run.")
@click.option("--lines", is_flag=True, help="PAYLOAD is `-`, and each line of the input is a task.")
@click.option("--raw", is_flag=True, help="The payload need not be JSON.")
@wait_option
@json_option
@click.pass_context
def push(
    ctx: click.Context,
    /,
    payload: str,
    group: str,
    task_id: str | None,
    lines: bool,
    raw: bool,
    wait_s: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Push a task, and print its id. PAYLOAD is JSON; `-` reads it from the input.

    With --wait, its result is printed instead; exit code 1 if it was given up, and 75 if there is none in time.

    \b
    $ kizuna queues push '{"image": "cat.png"}' --group images --name resize
    $ kizuna queues push --group reports --id report-2025-06-19 --delay 60
    $ kizuna queues push - --lines --group images < images.jsonl
    """
    if lines and (payload != "-" or task_id is not None or wait_s is not None):
        raise click.UsageError("--lines is for `-`, and goes together with neither --id nor --wait")
    payloads = text_or_stdin(payload).splitlines() if lines else [text_or_stdin(payload)]
    for each in payloads if not raw else []:
        check_json(each, "payload")

    async def add(k: Kizuna) -> list[Task]:
        from kizuna.coordination.queues.tasks import Push

        pushes = [Push(payload=each, id=task_id, **options) for each in payloads]
        tasks = await raw_queue(k, group).push_many(pushes)
        if wait_s is not None:
            await print_result(k, group, tasks[0].id, wait_s, as_json=as_json)
        return tasks

    tasks = connected(ctx.obj, add)
    if wait_s is None:
        tell_pushed(tasks, as_json=as_json)


def tell_pushed(tasks: list[Task], *, as_json: bool) -> None:
    if as_json:
        show([{"id": task.id, "group": task.group, "known": task.known} for task in tasks], as_json=True)
        return
    for task in tasks:
        put(task.id)
        if task.known:
            say(f"A task {task.id} is there already; nothing was changed.")


@click.command()
@click.argument("task_id", metavar="ID")
@group_option
@json_option
@click.pass_obj
def status(invocation: Invocation, task_id: str, group: str, as_json: bool) -> None:
    """Show what is known about a task. Exit code 3 if nothing is.

    \b
    $ kizuna queues status report-2025-06-19 --group reports
    """
    found = looking(invocation, lambda k: k.queue(group).status(task_id))
    show(facts_of(found) if as_json else for_people(found), as_json=as_json)


@click.command()
@click.argument("task_id", metavar="ID")
@group_option
@seconds_option("--wait", "Wait so long for it.", default=0.0, may_be_zero=True)
@json_option
@click.pass_obj
def result(invocation: Invocation, task_id: str, group: str, wait_s: float, as_json: bool) -> None:
    """Print what a task returned, as it is.

    Exit code 1 if it was given up, 3 if it is not known, 4 if it was cancelled, 75 if it is not done in time.

    \b
    $ kizuna queues result report-2025-06-19 --group reports --wait 60 | jq .total
    """
    looking(invocation, lambda k: print_result(k, group, task_id, wait_s, as_json=as_json))


@click.command()
@click.argument("task_id", metavar="ID")
@group_option
@click.pass_context
def cancel(ctx: click.Context, task_id: str, group: str) -> None:
    """Cancel a task that has not ended; one that runs is stopped. Exit code 4 if it had ended, 3 if it is not known.

    \b
    $ kizuna queues cancel report-2025-06-19 --group reports
    """
    if not looking(ctx.obj, lambda k: k.queue(group).cancel(task_id)):
        say(f"Task {task_id} has ended already.")
        ctx.exit(CONFLICT)
    say(f"Task {task_id} is cancelled.")


async def print_result(k: Kizuna, group: str, task_id: str, wait_s: float, *, as_json: bool) -> None:
    from contextlib import suppress

    queue, raw = raw_queue(k, group), None
    if wait_s > 0 or (await queue.status(task_id)).state not in ("waiting", "delayed", "running"):
        with suppress(TimeoutError):
            raw = await queue.result(task_id, timeout_s=wait_s or None)
    if raw is None:
        state = (await queue.status(task_id)).state
        say(f"Task {task_id} is not done, but {state}; `kizuna queues result {task_id} --wait …` waits for it.")
        click.get_current_context().exit(TRY_AGAIN)
    if as_json:
        show({"id": task_id, "result": readable(raw)}, as_json=True)
    else:
        text = as_text(raw)
        put(text, nl=not text.endswith("\n"))


def facts_of(status: TaskStatus) -> dict[str, Any]:
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(status)
    return facts


def for_people(status: TaskStatus) -> dict[str, Any]:
    """Without what there is nothing to say about."""
    facts = facts_of(status)
    for name in ("pushed_at", "started_at"):
        facts[name] = moment(facts[name])
    if status.progress is not None:
        facts["progress"] = f"{status.progress:.0%}"
    if status.state == "done":
        del facts["attempts"]
    return {name.replace("_", " "): value for name, value in facts.items() if value not in (None, "", 0)}
