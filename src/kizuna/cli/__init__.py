"""The `kizuna` command: one file per noun, imported when it is asked for and not before.

`kizuna --help` and the shell's completion of command names answer from `COMMANDS` alone.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kizuna._version import __version__
from kizuna.cli.exit_codes import INTERRUPTED, exit_code_of
from kizuna.errors import KizunaError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kizuna.settings import Loaded, Settings


class Place(NamedTuple):
    module: str
    name: str
    help: str


COMMANDS = {
    "up": Place("kizuna.cli.up", "up", "Run the server and all services in the foreground."),
    "server": Place("kizuna.cli.server", "server", "Start, stop and look at the embedded server."),
    "status": Place("kizuna.cli.status", "status", "Show the server in use and how it is."),
    "doctor": Place("kizuna.cli.doctor", "doctor", "Check everything, and say how to mend what is wrong."),
    "keys": Place("kizuna.cli.keys", "keys", "List, measure, back up and clean the keys on the server."),
    "units": Place("kizuna.cli.units", "units", "Call, serve and watch units, and the state that they keep."),
    "memory": Place("kizuna.cli.memory", "memory", "Remember, find, watch and check what programs remember."),
    "match": Place("kizuna.cli.match", "match", "Bring players together, as Open Match and minimatch do."),
    "locks": Place("kizuna.cli.locks", "locks", "Show, hold and break locks."),
    "processes": Place("kizuna.cli.processes", "processes", "Show the processes of the fleet, alive and dead."),
    "issues": Place("kizuna.cli.issues", "issues", "Check issues out and in, and see who works on what."),
    "queues": Place("kizuna.cli.queues", "queues", "Push, run and look after tasks."),
    "config": Place("kizuna.cli.config", "config", "Read, change and watch values that programs follow."),
    "flags": Place("kizuna.cli.flags", "flags", "Read, change and watch switches that programs follow."),
    "stats": Place("kizuna.cli.stats", "stats", "Count, and show what was counted."),
    "metrics": Place("kizuna.cli.metrics", "metrics", "Record values over time, and draw them."),
    "channels": Place("kizuna.cli.channels", "channels", "Publish messages, and follow them."),
    "settings": Place("kizuna.cli.settings", "settings", "Show and check what is set, and where."),
    "completion": Place("kizuna.cli.completion", "completion", "Print the script for completion in a shell."),
    "version": Place("kizuna.cli.version", "version", "Show the versions of kizuna and what it runs on."),
}


class Invocation:
    """What the options before the command say; `ctx.obj` of every command."""

    def __init__(self, overrides: Mapping[str, object], config: str | None) -> None:
        self.overrides = overrides
        self.config = config

    @functools.cached_property
    def loaded(self) -> Loaded:
        from kizuna.settings import load

        return load(self.overrides, overrides_from="command line", config=self.config)

    @property
    def settings(self) -> Settings:
        """Loaded when first asked for, so that `--help` needs no valid settings. Raises SettingsError."""
        return self.loaded.settings


class LazyGroup(click.Group):
    """Lists its commands from a table and imports the one that is to run.

    `commands` holds placeholders that carry nothing but a name and a line of help. Whoever lists, completes
    or suggests sees those; whoever resolves a command in order to run it gets the real one.
    """

    def __init__(self, name: str, *, places: Mapping[str, Place], **attributes: Any) -> None:
        super().__init__(name, **attributes)
        for below, place in places.items():
            self.add_command(click.Command(below, short_help=place.help))
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, self.load(name) if name and placeholder else None, rest

    def load(self, name: str) -> click.Command:
        place = self._places[name]
        command: click.Command = getattr(importlib.import_module(place.module), place.name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KizunaError as error:
            report(error)
            ctx.exit(exit_code_of(error))
        except click.NoSuchOption as error:
            raise told_where_it_stands(error, ctx) from None
        except KeyboardInterrupt:
            click.echo(err=True)  # the terminal has written ^C, and the prompt should not follow it
            ctx.exit(INTERRUPTED)


def report(error: KizunaError) -> None:
    """One line on stderr; of wrong settings, one for each problem."""
    for problem in error.problems if isinstance(error, SettingsError) else [str(error)]:
        click.echo(f"Error: {' '.join(problem.splitlines())}", err=True)


def told_where_it_stands(error: click.NoSuchOption, ctx: click.Context) -> click.NoSuchOption:
    """For `kizuna doctor --url …`, where an option of `kizuna` itself stands behind the command."""
    option, here = error.option_name, ctx.command_path
    if error.ctx is None or not any(option in parameter.opts for parameter in ctx.command.params):
        return error
    command = error.ctx.command_path.removeprefix(here)
    return click.NoSuchOption(option, f"{option} stands before the command: {here} {option} …{command}", ctx=error.ctx)


def read_assignments(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """`("store.url=redis://db", …)` as a dictionary; of two for one name, the last counts."""
    if not all("=" in text for text in given):
        # Not quoted: what stands there may be a misspelt secret.
        raise click.BadParameter("there is no '=' in it; write SECTION.NAME=VALUE")
    return {name.strip(): value for name, _, value in (text.partition("=") for text in given)}


@click.group(
    "kizuna",
    cls=LazyGroup,
    places=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--config", metavar="FILE", help="Read this file instead of ./kizuna.toml.")
@click.option(
    "--set",
    "assignments",
    metavar="SECTION.NAME=VALUE",
    multiple=True,
    callback=read_assignments,
    help="Change one setting for this call; repeatable.",
)
@click.option("--url", metavar="URL", help="The server to use: short for --set store.url=URL.")
@click.version_option(__version__, prog_name="kizuna", message="%(prog)s %(version)s")
@click.pass_context
def command(ctx: click.Context, config: str | None, assignments: dict[str, str], url: str | None) -> None:
    """Processes, programs and agents that talk, work, match, remember and coordinate on one Redis or Valkey.

    \b
    $ kizuna up
    $ kizuna --url redis://localhost:6379 doctor
    $ kizuna --set store.timeout_s=1 status --json
    """
    from kizuna.cli.logs import keep_logs_back

    if os.environ.get("NO_COLOR"):
        ctx.color = False
    keep_logs_back()
    ctx.obj = Invocation(assignments if url is None else {**assignments, "store.url": url}, config)


def main() -> None:
    """Run this process's command line, and end the process with one of the documented exit codes."""
    _open_standard_streams()
    command(prog_name="kizuna")


def _open_standard_streams() -> None:
    """Who started us may have closed some, as in `kizuna … <&-`; a socket that got such a number would not be expected
    there, neither by a program that we start nor by the loop."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # For as long as we run. It gets the lowest number that is free, which is the one that is missing.
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
