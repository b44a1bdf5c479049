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
from typing import TYPE_CHECKING, NamedTuple

from kizuna.coordination.worker.handlers import Failed

if TYPE_CHECKING:
    from kizuna.coordination.queues.tasks import Delivery

# Of what a program wrote to standard error: the end, where it says why it ended.
_REASON_BYTES = 1000
# As many as a worker has places; each is made when it is first needed.
_THREADS_AT_MOST = 10_000
_KILLED_WITHIN_S = 1.0


class Program:
    """A handler that runs a program, without a shell, and gives back what it wrote. For queues with the codec RAW.

    The program is killed, together with whatever it started, when its task times out, is cancelled, or is lost.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = list(arguments)
        # In threads, because asyncio's own way takes five times as long on uvloop.
        self._threads = ThreadPoolExecutor(_THREADS_AT_MOST, "kizuna-program")

    async def __call__(self, payload: bytes, delivery: Delivery) -> bytes:
        run = _Run(self._arguments, _facts(delivery))
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


def _facts(delivery: Delivery) -> dict[str, str]:
    return {
        "KIZUNA_TASK_ID": delivery.id,
        "KIZUNA_TASK_NAME": delivery.name,
        "KIZUNA_TASK_ATTEMPT": str(delivery.attempt),
    }


def _reason(end: _End) -> str:
    how = f"ended with exit code {end.code}" if end.code > 0 else f"was ended by {signal.Signals(-end.code).name}"
    said = end.errors[-_REASON_BYTES:].decode(errors="replace").strip()
    return f"the program {how}" + (f": {said}" if said else "")
