"""Another program as a member of the fleet, for as long as it runs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio.subprocess import Process as Program

    from kizuna.coordination.processes.processes import Processes

# How long a program that was asked to end may take, if it is we who have to go.
_END_WITHIN_S = 10.0


async def accompany(
    processes: Processes, command: Sequence[str], *, name: str, kind: str, info: Mapping[str, object]
) -> int:
    """Run the program, and be heard of in its name until it ends. Returns its exit code, as a shell would tell it.

    Signals that are to end us are passed on. ProcessTaken, and the program is not started, if the name is in use.
    """
    facts = {**info, "command": " ".join(command)}
    async with processes.membership(kind, facts, name) as membership:
        program = await asyncio.create_subprocess_exec(*command)
        try:
            await membership.update({"pid": program.pid})
            with _passing_signals_to(program):
                code = await program.wait()
        finally:
            await _end(program)
    return code if code >= 0 else 128 - code


@contextmanager
def _passing_signals_to(program: Program) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
    for number in numbers:
        loop.add_signal_handler(number, _pass_on, program, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _pass_on(program: Program, number: signal.Signals) -> None:
    # Ctrl-C in a terminal reaches the program by itself.
    if program.returncode is None and not (number == signal.SIGINT and sys.stdin.isatty()):
        program.send_signal(number)


async def _end(program: Program) -> None:
    if program.returncode is not None:
        return
    program.terminate()
    try:
        async with asyncio.timeout(_END_WITHIN_S):
            await program.wait()
    except TimeoutError:
        program.kill()
        await program.wait()
