"""`kizuna locks`."""

from __future__ import annotations

import math
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.connecting import looking
from kizuna.cli.exit_codes import NOT_FOUND
from kizuna.cli.options import seconds_option
from kizuna.cli.output import json_option, say, show

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.coordination.locks import Held, Holder

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# As shells and env have it.
_CANNOT_RUN, _COMMAND_NOT_FOUND, _ENDED_BY_SIGNAL = 126, 127, 128
# How long a command has to end when its lock is lost, before it is killed.
_END_WITHIN_S = 5.0


@click.group()
def locks() -> None:
    """Show, hold and break locks.

    \b
    $ kizuna locks ls
    $ kizuna locks hold backup:daily --wait 60 -- ./backup.sh
    """


@locks.command("ls")
@click.argument("pattern", default="*")
@json_option
@click.pass_obj
def list_locks(invocation: Invocation, pattern: str, as_json: bool) -> None:
    """List the locks that are held now, all or those that fit a PATTERN.

    \b
    $ kizuna locks ls 'issue:*'
    $ kizuna locks ls --json | jq -r 'select(.waiting > 0).lock'
    """
    holders = looking(invocation, lambda k: k.locks.ls(pattern))
    show([for_machines(holder) if as_json else for_people(holder) for holder in holders], as_json=as_json)
    if not holders and not as_json:
        say("No lock is held." if pattern == "*" else f"No lock that fits {pattern} is held.")


@locks.command("show")
@click.argument("name")
@json_option
@click.pass_obj
def show_lock(invocation: Invocation, name: str, as_json: bool) -> None:
    """Show who holds a lock and who waits for it.

    \b
    $ kizuna locks show issue:123
    """

    async def ask(k: Kizuna) -> tuple[Holder | None, list[str]]:
        return await k.locks.holder(name), await k.locks.line(name)

    holder, line = looking(invocation, ask)
    facts: dict[str, Any] = {"lock": name, "state": "free" if holder is None else "held"}
    if holder is not None:
        facts |= for_machines(holder) if as_json else {**for_people(holder), "token": holder.token}
    show(facts | {"waiting": line}, as_json=as_json)


@locks.command("break")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def break_lock(ctx: click.Context, name: str, yes: bool) -> None:
    """Take a lock from whoever holds it, and give it to the next one who waits.

    The holder is told when it next renews its lease; until then two may be at work. Exit code 3 if nobody holds it.

    \b
    $ kizuna locks break issue:123 --yes
    """
    holder = looking(ctx.obj, lambda k: k.locks.holder(name))
    if holder is not None and not yes:
        until = f"for up to {ends_in(holder)} more" if math.isfinite(holder.ends_in_s) else "without an end"
        click.confirm(f"Lock {name} is held by {whose_is(holder)}, {until}. Take it away?", abort=True, err=True)
    broken = looking(ctx.obj, lambda k: k.locks.break_lock(name)) if holder is not None else None
    if broken is None:
        say(f"Nobody holds the lock {name}.")
        ctx.exit(NOT_FOUND)
    say(f"Taken from {whose_is(broken)}.")


@locks.command()
@seconds_option("--wait", "Wait so long; or inf.", default=0.0, may_be_zero=True)
@click.option("--lease", "lease_s", type=float, metavar="SECONDS", help="How long the lock outlives a crash of ours.")
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def hold(ctx: click.Context, name: str, command: tuple[str, ...], wait_s: float, lease_s: float | None) -> None:
    """Run a COMMAND while the lock NAME is held. What stands behind `--` is the command's own.

    Ends with the exit code of the command; with 5, and without running it, if somebody else holds the lock. The
    command finds the fencing number in KIZUNA_FENCE. Signals are passed on to it. If the lock is lost, it is told to
    end (SIGTERM, and SIGKILL five seconds later), and the exit code is 4.

    \b
    $ kizuna locks hold backup:daily --wait 60 -- ./backup.sh --all
    """
    from kizuna.app import connect
    from kizuna.loop import run

    async def run_it(signals: Signals) -> int:
        # Told only, and not cancelled: the command is what has to end first.
        told: dict[str, Any] = {"lease_s": lease_s, "wait_s": wait_s, "cancel_when_lost": False}
        async with connect(ctx.obj.settings) as k, k.locks.hold(name, **told) as held:
            return await run_command(command, held, signals)

    ctx.exit(run(with_signals(run_it)))


# -- a command under a lock -------------------------------------------------------------------------------


class Signals:
    """Passed on to the command while there is one; before that, they end us, and the lock is given back."""

    def __init__(self) -> None:
        self.process: asyncio.subprocess.Process | None = None
        self.ended_us: signal.Signals | None = None
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> Signals:
        import asyncio

        self._task = asyncio.current_task()
        for number in FORWARDED:
            asyncio.get_running_loop().add_signal_handler(number, self._take, number)
        return self

    def __exit__(self, *_: object) -> None:
        import asyncio

        for number in FORWARDED:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _take(self, number: signal.Signals) -> None:
        if self.process is None and self._task is not None:
            self.ended_us = number
            self._task.cancel()
        elif (
            self.process is not None
            and self.process.returncode is None
            and not (number == signal.SIGINT and sys.stdin.isatty())
        ):
            # Ctrl-C in a terminal has reached the command already: it goes to all in the foreground.
            self.process.send_signal(number)


async def with_signals(work: Callable[[Signals], Awaitable[int]]) -> int:
    """What the work returns, or what a shell makes of the signal that ended it before there was a command."""
    import asyncio

    with Signals() as signals:
        try:
            return await work(signals)
        except asyncio.CancelledError:
            if signals.ended_us is None:
                raise
            return _ENDED_BY_SIGNAL + signals.ended_us


async def run_command(command: tuple[str, ...], held: Held, signals: Signals) -> int:
    """Its exit code, or what a shell would make of it."""
    import asyncio

    facts = {"KIZUNA_LOCK": held.name, "KIZUNA_FENCE": str(held.fence)}
    try:
        process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **facts})
    except OSError as error:
        say(f"Error: {command[0]} cannot be run: {error.strerror}")
        return _COMMAND_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN
    signals.process = process
    lost = asyncio.create_task(held.lost.wait())
    ended = asyncio.create_task(process.wait())
    await asyncio.wait([lost, ended], return_when=asyncio.FIRST_COMPLETED)
    lost.cancel()
    if not ended.done():
        await end(process, ended)
    code = ended.result()
    return code if code >= 0 else _ENDED_BY_SIGNAL - code


async def end(process: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> None:
    import asyncio

    say("The lock is lost; the command is told to end.")
    process.terminate()
    await asyncio.wait([ended], timeout=_END_WITHIN_S)
    if not ended.done():
        process.kill()
        await ended


# -- what is shown ----------------------------------------------------------------------------------------


def for_machines(holder: Holder) -> dict[str, Any]:
    return {
        "lock": holder.lock,
        "process": holder.process or None,
        "token": holder.token,
        "fence": holder.fence or None,
        "ends_in_s": holder.ends_in_s if math.isfinite(holder.ends_in_s) else None,
        "waiting": holder.waiting,
    }


def for_people(holder: Holder) -> dict[str, Any]:
    return {
        "lock": holder.lock,
        "holder": whose_is(holder),
        "fence": holder.fence or None,
        "ends in": ends_in(holder),
        "waiting": holder.waiting,
    }


def whose_is(holder: Holder) -> str:
    return holder.process or f"{holder.token or 'an empty value'} (by hand)"


def ends_in(holder: Holder) -> str:
    return f"{holder.ends_in_s:.1f} s" if math.isfinite(holder.ends_in_s) else "never"
