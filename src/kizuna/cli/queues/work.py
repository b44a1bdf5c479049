"""`kizuna queues work`: run tasks with Python functions or with programs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.options import seconds_option
from kizuna.cli.output import json_option, say, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.coordination.worker import Worker
    from kizuna.settings import Settings


@click.command()
@click.option("--group", "groups", multiple=True, help="Whose tasks to run; repeatable.  [default: default]")
@click.option(
    "--handler",
    "handlers",
    multiple=True,
    metavar="[NAME=]MODULE:FUNCTION",
    help="A function for the tasks of this name, or of all that no other is for; repeatable.",
)
@click.option("--exec", "program", metavar="COMMAND", help="A program to run for each task, instead of functions.")
@click.option(
    "--concurrency", type=click.IntRange(1), help="How many run at once.  [default: 16; with --exec, one per core]"
)
@click.option("--prefetch", type=click.IntRange(0), default=0, show_default=True, help="How many more to take.")
@seconds_option("--timeout", "For tasks that have none of their own.")
@seconds_option("--stop-within", "What tasks get to end when we are told to.", default=10.0, may_be_zero=True)
@json_option
@click.pass_obj
def work(
    invocation: Invocation,
    /,
    groups: tuple[str, ...],
    handlers: tuple[str, ...],
    program: str | None,
    stop_within_s: float,
    as_json: bool,
    **options: Any,
) -> None:
    """Run tasks until Ctrl-C or SIGTERM.

    A function takes the payload, and the task itself if it has a parameter `delivery`; what it returns is the result.
    Modules are also looked for where you are. A program gets the payload on its standard input, and what it writes to
    its standard output is the result; if it ends with another exit code than 0, the attempt has failed, for the reason
    that it wrote last to its standard error. It finds KIZUNA_TASK_ID, KIZUNA_TASK_NAME and KIZUNA_TASK_ATTEMPT in
    its environment, and is started without a shell.

    Told to stop, it takes no more tasks, and lets those that run end; what is not done by then is handed back. A second
    signal hands back at once.

    \b
    $ kizuna queues work --group images --handler resize=shop.images:resize --concurrency 4
    $ kizuna queues work --group thumbnails --exec "convert - -resize 100x100 png:-"
    $ kizuna queues work --exec "sh -c 'jq .order | ./ship.sh'" --timeout 60
    """
    from kizuna.cli.logs import show_logs
    from kizuna.loop import run

    if bool(handlers) == bool(program):
        raise click.UsageError("say which functions (--handler) or which program (--exec) runs the tasks")
    functions = named_program(program) if program else [named_function(each) for each in handlers]
    if options["concurrency"] is None:
        options["concurrency"] = (os.cpu_count() or 1) if program else 16
    show_logs()

    def make(k: Kizuna) -> Worker:
        return make_worker(k, groups or ("default",), functions, as_they_are=bool(program), **options)

    if still_running := run(serve(invocation.settings, make, stop_within_s, as_json=as_json)):
        # Python would wait for them. Their tasks were handed back.
        say(f"Functions that still run in threads: {still_running}; they end here.")
        sys.stdout.flush()
        os._exit(0)


def make_worker(
    k: Kizuna,
    groups: tuple[str, ...],
    functions: list[tuple[str, Callable[..., Any]]],
    *,
    as_they_are: bool,
    **options: Any,
) -> Worker:
    from kizuna.codecs import JSON, RAW
    from kizuna.coordination.worker import Worker

    codec = RAW if as_they_are else JSON
    worker = Worker(k, *[k.queue(group, codec=codec) for group in groups], **options)
    for name, function in functions:
        worker.handler(name)(function)
    return worker


async def serve(settings: Settings, make: Callable[[Kizuna], Worker], stop_within_s: float, *, as_json: bool) -> int:
    """Returns how many functions could not be stopped."""
    from kizuna.app import connect
    from kizuna.service import run_until_signalled

    async with connect(settings) as k:
        worker = make(k)

        def announce() -> None:
            show({"process": k.process, "groups": list(worker.counts), "pid": os.getpid()}, as_json=as_json)
            sys.stdout.flush()
            say("Ctrl-C stops it.")

        signal = await run_until_signalled(worker, on_started=announce, stop_timeout_s=stop_within_s)
        say(f"Stopped by {signal.name}: {summary(worker)}.")
        return sum(each.running for each in worker.counts.values())


def summary(worker: Worker) -> str:
    counts = worker.counts.values()
    done, released = sum(each.done for each in counts), sum(each.released for each in counts)
    failed = sum(each.failed + each.timed_out for each in counts)
    return f"{done} done, {failed} failed, {released} handed back"


def named_function(text: str) -> tuple[str, Callable[..., Any]]:
    """`resize=shop.images:resize`, or without a name for all tasks."""
    from kizuna.cli.handlers import imported_function
    from kizuna.coordination.worker.handlers import EVERY_NAME

    name, _, place = text.rpartition("=")
    return name or EVERY_NAME, imported_function(place, f"--handler {text}", "[NAME=]MODULE:FUNCTION")


def named_program(command: str) -> list[tuple[str, Callable[..., Any]]]:
    from kizuna.cli.handlers import program_arguments
    from kizuna.coordination.worker.handlers import EVERY_NAME
    from kizuna.coordination.worker.programs import Program

    return [(EVERY_NAME, Program(program_arguments(command)))]
