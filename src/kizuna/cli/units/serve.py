"""`kizuna units serve`: answer requests with a program or a Python function."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.options import probes_option, seconds_option
from kizuna.cli.output import json_option, say, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.codecs import Codec
    from kizuna.coordination.handlers import Handler
    from kizuna.service import Service
    from kizuna.units.unit import Unit

log = logging.getLogger("kizuna.units")

CODECS = ("raw", "text", "json", "msgpack")
# What a thread takes to notice that there is nothing more to do.
_THREADS_END_WITHIN_S = 0.5


@click.command()
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[-- ARGS...]")
@click.option("--exec", "program", metavar="COMMAND", help="The program to run for each request.")
@click.option(
    "--handler", "function", metavar="MODULE:FUNCTION", help="The function to call for each, instead of a program."
)
@click.option(
    "--codec", type=click.Choice(CODECS), default="raw", show_default=True, help="With --handler: what values are."
)
@click.option("--pattern", help="Which requests, as in `muf/*/req/*`.  [default: those to NAME]")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    help="How many at once.  [default: units.concurrency; with --exec, one per core]",
)
@seconds_option("--timeout", "With --exec: kill a program that takes longer.")
@seconds_option("--stop-within", "What requests get to be answered when we stop.", default=10.0, may_be_zero=True)
@probes_option
@json_option
@click.pass_obj
def serve(
    invocation: Invocation,
    /,
    name: str,
    arguments: tuple[str, ...],
    program: str | None,
    function: str | None,
    codec: str,
    pattern: str | None,
    concurrency: int | None,
    timeout_s: float | None,
    stop_within_s: float,
    with_probes: bool,
    as_json: bool,
) -> None:
    """Answer the requests to a unit, until Ctrl-C or SIGTERM. Any number of processes may serve one name.

    A program gets what is asked on its standard input, and what it writes to its standard output is the reply; if it
    ends with another exit code than 0, the caller gets an error with what it wrote last to its standard error. It finds
    KIZUNA_UNIT, KIZUNA_REQUEST_ID and KIZUNA_REQUEST_CALLER in its environment, and is started without a shell. Its
    arguments are in COMMAND, or behind `--`, each as it is. The reply is whole when nobody has its standard output open
    any more: what it leaves running has to close that.

    A function takes what is asked, and the request itself if it has a parameter `request`; what it returns is the
    reply. Modules are also looked for where you are.

    Told to stop, it takes no more requests, and lets those that run end; who is not answered by then gets an error. A
    second signal ends it at once.

    \b
    $ kizuna units serve thumbnail --exec "convert - -resize 100x100 png:-" --timeout 20
    $ kizuna units serve first-line --exec head -- -n 1
    $ kizuna units serve adder --handler sums:add --codec json --probes
    """
    from kizuna.cli.logs import show_logs
    from kizuna.loop import run

    if bool(function) == bool(program):
        raise click.UsageError("say which program (--exec) or which function (--handler) answers the requests")
    handler = named_handler(name, arguments, program, function, timeout_s)
    if program and concurrency is None:
        concurrency = os.cpu_count() or 1

    def make(k: Kizuna) -> tuple[Unit, Service]:
        unit = k.unit(name, codec=codec_of(codec))
        return unit, unit.server(telling_failures(handler), pattern=pattern, concurrency=concurrency)

    show_logs()
    run(serve_until_signalled(invocation, make, stop_within_s, with_probes=with_probes, as_json=as_json))
    if still_running := threads_that_remain(handler):
        # Python would wait for them. Whoever asked has been told that there will be no answer.
        say(f"Functions or programs that still run: {still_running}; they end here.")
        sys.stdout.flush()
        os._exit(0)


def named_handler(
    unit: str, arguments: tuple[str, ...], program: str | None, function: str | None, timeout_s: float | None
) -> Callable[..., Any]:
    from kizuna.cli.handlers import imported_function, program_arguments
    from kizuna.units.programs import Program

    if program:
        return Program(unit, program_arguments(program, arguments), timeout_s=timeout_s)
    if arguments or timeout_s is not None:
        raise click.UsageError("arguments and --timeout are for programs (--exec)")
    return imported_function(function or "", f"--handler {function}", "MODULE:FUNCTION")


def codec_of(name: str) -> Codec:
    from kizuna import codecs

    codec: Codec = getattr(codecs, name.upper())
    return codec


async def serve_until_signalled(
    invocation: Invocation,
    make: Callable[[Kizuna], tuple[Unit, Service]],
    stop_within_s: float,
    *,
    with_probes: bool,
    as_json: bool,
) -> None:
    from kizuna.app import connect
    from kizuna.cli.up import make_probes
    from kizuna.service import run_until_signalled

    async with connect(invocation.settings) as k:
        unit, server = make(k)
        # Behind the server, so that nobody is told to be ready who does not serve yet, or any more.
        probes = [make_probes(k, k.units.measures)] if with_probes else []

        def announce() -> None:
            facts = {"unit": unit.name, "process": k.process, "pid": os.getpid()}
            show(facts | ({"probes": probes[0].url} if probes else {}), as_json=as_json)
            say("Ctrl-C stops it.")

        signal = await run_until_signalled(server, *probes, on_started=announce, stop_timeout_s=stop_within_s)
        counts = k.units.counts_of(unit.name)
        say(f"Stopped by {signal.name}: {counts.served} answered, {counts.failed} failed.")


def telling_failures(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with a line in the log for each request that fails: else only who asked would know."""
    from kizuna.coordination.handlers import handler_of

    handler = handler_of(function, "request")

    async def call_async(data: Any, request: Any) -> Any:
        try:
            return await function(data, **extra(handler, request))
        except Exception as error:
            tell(error, request)
            raise

    def call_plain(data: Any, request: Any) -> Any:
        try:
            return function(data, **extra(handler, request))
        except Exception as error:
            tell(error, request)
            raise

    return call_async if handler.is_async else call_plain


def extra(handler: Handler, request: Any) -> dict[str, Any]:
    return {"request": request} if handler.takes_extra else {}


def tell(error: Exception, request: Any) -> None:
    from kizuna.coordination.handlers import Failed, reason_of

    reason = str(error) if isinstance(error, Failed) else reason_of(error)
    log.info("request failed", extra={"request": request.path, "reason": reason})


def threads_that_remain(handler: Callable[..., Any]) -> int:
    """Those in which a function or a program is at work: they cannot be stopped."""
    import threading
    import time

    from kizuna.coordination.programs import THREADS
    from kizuna.units.programs import Program

    if isinstance(handler, Program):
        handler.close()
    working = [thread for thread in threading.enumerate() if thread.name.startswith((THREADS, "kizuna-unit"))]
    ends_at = time.monotonic() + _THREADS_END_WITHIN_S
    for thread in working:
        thread.join(max(0.0, ends_at - time.monotonic()))
    return sum(thread.is_alive() for thread in working)
