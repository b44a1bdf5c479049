"""Programs as handlers: the payload on standard input, the result on standard output."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from kizuna.coordination.handlers import Failed

THREADS = "kizuna-program"
"""What the names of the threads begin with that talk to programs."""

# Of what a program wrote to standard error: the end, where it says why it ended.
_REASON_BYTES = 1000
# As many as whoever runs programs has places; each is made when it is first needed.
_THREADS_AT_MOST = 10_000
_KILLED_WITHIN_S = 1.0


class Program:
    """Started without a shell, once for each payload."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = list(arguments)
        # In threads, because asyncio's own way takes five times as long on uvloop.
        self._threads = ThreadPoolExecutor(_THREADS_AT_MOST, THREADS)

    async def run(self, payload: bytes, facts: Mapping[str, str]) -> bytes:
        """What it wrote; `facts` are in its environment. Failed, with the end of what it wrote to standard error, if it
        ended with another exit code than 0. Cancelled, it is killed, together with whatever it started."""
        run = _Run(self._arguments, facts)
        ending = asyncio.get_running_loop().run_in_executor(self._threads, run.talk, payload)
        try:
            end = await asyncio.shield(ending)
        except asyncio.CancelledError:
            run.kill()
            await asyncio.wait([ending], timeout=_KILLED_WITHIN_S)
            raise
        if end.code:
            raise Failed(_reason(end))
        return end.output

    def close(self) -> None:
        """Let go of the threads; programs that still run are not waited for."""
        self._threads.shutdown(wait=False)


class _End(NamedTuple):
    code: int
    output: bytes
    errors: bytes


class _Run:
    def __init__(self, arguments: list[str], facts: Mapping[str, str]) -> None:
        self._arguments, self._facts = arguments, facts
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False
        # The program is started in one thread, and killed from another.
        self._turn = threading.Lock()

    def talk(self, payload: bytes) -> _End:
        """In a thread."""
        with self._turn:
            if self._is_killed:
                return _End(-signal.SIGKILL, b"", b"")
            process = self._process = self._start()
        with process:
            output, errors = process.communicate(payload)
        return _End(process.returncode, output, errors)

    def kill(self) -> None:
        with self._turn:
            self._is_killed = True
            if self._process is not None and self._process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _start(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        # A process group of its own: it can be killed with its children, and a Ctrl-C is for us, who let it end.
        return subprocess.Popen(
            self._arguments,
            env={**os.environ, **self._facts},
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            process_group=0,
        )


def _reason(end: _End) -> str:
    how = f"ended with exit code {end.code}" if end.code > 0 else f"was ended by {_signal_name(-end.code)}"
    said = end.errors[-_REASON_BYTES:].decode(errors="replace").strip()
    return f"the program {how}" + (f": {said}" if said else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most of the real-time signals have no name
        return f"signal {number}"
