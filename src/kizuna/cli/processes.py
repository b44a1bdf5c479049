"""`kizuna processes`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.connecting import connected
from kizuna.cli.fields import read_fields
from kizuna.cli.output import Row, json_option, moment, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.coordination.processes import Process

NO_SUCH_PROGRAM = 127  # as shells tell it


@click.group()
def processes() -> None:
    """Show the processes of the fleet, alive and dead.

    \b
    $ kizuna processes ls
    $ kizuna processes zombies
    $ kizuna processes run --kind backup -- ./backup.sh
    """


@processes.command("ls")
@json_option
@click.pass_obj
def list_processes(invocation: Invocation, as_json: bool) -> None:
    """List the processes at work, and those that died.

    alive: heard of in time. silent: not so, and either busy or dying. zombie: dead, without having said goodbye.

    \b
    $ kizuna processes ls
    $ kizuna processes ls --json | jq -r 'select(.state == "alive") | .id'
    """
    show_processes(connected(invocation, everybody), as_json=as_json)


@processes.command()
@json_option
@click.pass_obj
def zombies(invocation: Invocation, as_json: bool) -> None:
    """List the processes that died without saying goodbye, until they are buried or forgotten.

    \b
    $ kizuna processes zombies
    $ kizuna processes zombies --json | jq 'select(.given_back_at == null)'
    """
    show_processes(connected(invocation, lambda k: k.processes.zombies()), as_json=as_json)


@processes.command("show")
@click.argument("process")
@json_option
@click.pass_obj
def show_process(invocation: Invocation, process: str, as_json: bool) -> None:
    """Show all that is known about a process. Exit code 3 if there is none of that name.

    \b
    $ kizuna processes show web-1
    $ kizuna processes show web-1 --json | jq .info
    """
    found = connected(invocation, lambda k: k.processes.info(process))
    show(as_data(found) if as_json else as_record(found), as_json=as_json)


@processes.command()
@click.argument("process", required=False)
@click.option("--all", "everyone", is_flag=True, help="All zombies.")
@click.pass_obj
def bury(invocation: Invocation, process: str | None, everyone: bool) -> None:
    """Take a zombie off the list, after all it had held was given back.

    \b
    $ kizuna processes bury web-1
    $ kizuna processes bury --all
    """
    if everyone == (process is not None):
        raise click.UsageError("name a process, or say --all")

    async def bury_them(k: Kizuna) -> list[str]:
        names = [process] if process else [zombie.id for zombie in await k.processes.zombies()]
        for name in names:
            await k.processes.bury(name)
        return names

    buried = connected(invocation, bury_them)
    say(f"Buried {', '.join(buried)}." if buried else "There are no zombies.")


@processes.command()
@click.option("--every", "every_s", type=click.FloatRange(0.1), default=1.0, show_default=True, metavar="SECONDS")
@json_option
@click.pass_obj
def watch(invocation: Invocation, every_s: float, as_json: bool) -> None:
    """List the processes again and again, until Ctrl-C.

    \b
    $ kizuna processes watch
    $ kizuna processes watch --every 10 --json >> fleet.jsonl
    """

    async def follow(k: Kizuna) -> None:
        while True:
            found = await everybody(k)
            if sys.stdout.isatty() and not as_json:
                click.clear()
            show_processes(found, as_json=as_json)
            sys.stdout.flush()
            await asyncio.sleep(every_s)

    connected(invocation, follow)


@processes.command("run", context_settings={"ignore_unknown_options": True})
@click.option("--id", "name", metavar="NAME", help="Its name in the fleet; else one is made up.")
@click.option("--kind", help="What kind of process it is; else the name of the program.")
@click.option(
    "--info",
    metavar="NAME=VALUE",
    multiple=True,
    callback=read_fields,
    help="Something to say about it; repeatable.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run_program(
    ctx: click.Context, name: str | None, kind: str | None, info: dict[str, str], command: tuple[str, ...]
) -> None:
    """Run a program as a member of the fleet, from its start to its end.

    Others see it, and notice when it dies; it need not know of kizuna. Ends with the exit code of the program.

    \b
    $ kizuna processes run -- ./backup.sh --full
    $ kizuna processes run --id mirin --kind ambassador -- node mirin.js
    """
    from pathlib import Path

    from kizuna.coordination.processes.companion import accompany

    async def go(k: Kizuna) -> int:
        kind_of_it = kind or Path(command[0]).name
        return await accompany(k.processes, command, name=name or k.process, kind=kind_of_it, info=info)

    try:
        code = connected(ctx.obj, go)
    except (FileNotFoundError, PermissionError) as error:
        say(f"Error: {command[0]} cannot be run: {error.strerror}")
        code = NO_SUCH_PROGRAM
    ctx.exit(code)


async def everybody(k: Kizuna) -> list[Process]:
    return [*await k.processes.active(), *await k.processes.zombies()]


def show_processes(found: list[Process], *, as_json: bool) -> None:
    if not found and not as_json:
        say("There are none.")
    show([as_data(process) if as_json else as_row(process) for process in found], as_json=as_json)


def as_data(process: Process) -> dict[str, Any]:
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(process)
    return data


def as_row(process: Process) -> Row:
    return {
        "id": process.id,
        "kind": process.kind,
        "host": process.host,
        "pid": process.pid,
        "since": moment(process.started_at),
        "heard": None if process.silent_s is None else f"{ago(process.silent_s)} ago",
        "state": click.style(process.state, fg=COLOURS.get(process.state)),
    }


def as_record(process: Process) -> Row:
    died = {"died": moment(process.died_at), "given back": moment(process.given_back_at)} if process.died_at else {}
    known = {**as_row(process), "beats": process.beats, "version": process.version, **died}
    return known | {name: text for name, text in process.info.items() if name not in known}


COLOURS = {"alive": "green", "silent": "yellow", "zombie": "red"}


def ago(seconds: float) -> str:
    from kizuna.cli.status import duration

    return f"{seconds:.1f} s" if seconds < 10 else duration(round(seconds))
