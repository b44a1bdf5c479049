"""Several processes of one command: they share a port, are kept alive, and end together.

One Python process uses one core; what is served by four can use four.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from kizuna.errors import ServiceFailed
from kizuna.listening import saying_why

log = logging.getLogger("kizuna.match.serving")

_AGAIN_FIRST_S = 0.5
_AGAIN_LONGEST_S = 30.0
# A copy that has worked for so long had no trouble with its start.
_SETTLED_S = 10.0

# What each copy runs first. Not between fork and exec: a process that has gRPC in it must not be forked.
# A Ctrl-C is for us, who let them end; to them it would be the second word, and they would drop everything. So they are
# a group of their own, and are told by the system should we die; unless we did before they could say so.
_APART_AND_NEVER_ALONE = """
import os, signal, sys
os.setpgid(0, 0)
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Copies:
    """A service: `count` processes that run `arguments`. Each says that it works by its first line on standard output;
    what it writes to standard error is seen as if we had written it.

    A copy that ends is started again, later and later if that happens again and again. If one ends before all have
    worked once, ServiceFailed. They end with us, also when we are killed.
    """

    def __init__(self, arguments: Sequence[str], count: int) -> None:
        self.first_lines: list[str] = []
        """What the copies said when they began to work, in the order of that; those that were started again too."""
        self.restarts = 0
        self._arguments, self._count = list(arguments), count
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._threads: ThreadPoolExecutor

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    async def run(self, started: asyncio.Event) -> None:
        working = [asyncio.Event() for _ in range(self._count)]
        self._threads = ThreadPoolExecutor(self._count, "kizuna-copies")
        keepers = [asyncio.create_task(self._keep(number, event)) for number, event in enumerate(working)]
        try:
            await _all_work(working, keepers)
            started.set()
            await _until_one_fails(keepers)
        finally:
            await _end(keepers)
            self._threads.shutdown(wait=False)

    async def _keep(self, number: int, works: asyncio.Event) -> None:
        loop, again_s = asyncio.get_running_loop(), _AGAIN_FIRST_S
        while True:
            began = loop.time()
            code = await self._run_one(number, works)
            if not works.is_set():
                raise ServiceFailed(f"copy {number + 1} of {self._count}", f"{_how(code)} before it worked")
            again_s = _AGAIN_FIRST_S if loop.time() - began > _SETTLED_S else again_s
            log.error("copy ended", extra={"copy": number, "how": _how(code), "again_in_s": again_s})
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, _AGAIN_LONGEST_S)
            self.restarts += 1

    async def _run_one(self, number: int, works: asyncio.Event) -> int:
        """Its exit code. Cancelled, it is told to end, and waited for; cancelled again, it is killed."""
        loop = asyncio.get_running_loop()

        def hear(line: str) -> None:
            self.first_lines.append(line)
            works.set()

        # Started in this thread: the system tells it of the end of the thread that it is from.
        process = self._processes[number] = _start(self._arguments)
        ending = loop.run_in_executor(
            self._threads, _follow, process, lambda line: loop.call_soon_threadsafe(hear, line)
        )
        try:
            return await asyncio.shield(ending)
        except asyncio.CancelledError:
            await _end_process(process, ending)
            raise
        finally:
            del self._processes[number]


@contextmanager
def shared_port(host: str, port: int, setting: str) -> Iterator[int]:
    """A port, for 0 a free one, that is kept for copies of ours: they listen with `reuse_port`, in any order, and
    nobody else can take it between the end of one and the start of the next. CannotListen if somebody has it."""
    settings = f"match.host and {setting}"
    with saying_why(host, port, settings):
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if port:
            _refuse_if_taken(family, kind, protocol, address)
        keeper = socket.socket(family, kind, protocol)
    with keeper:
        with saying_why(host, port, settings):
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            # Bound, and not listening: so no connection comes here.
            keeper.bind(address)
        yield keeper.getsockname()[1]


def _refuse_if_taken(family: int, kind: int, protocol: int, address: object) -> None:
    """Others who share their ports, too, would let us in, and callers would get now them, now us."""
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)  # type: ignore[arg-type]


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    prepared = [sys.executable, "-S", "-E", "-c", _APART_AND_NEVER_ALONE, str(os.getpid()), *arguments]
    return subprocess.Popen(prepared, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


def _follow(process: subprocess.Popen[bytes], heard: Callable[[str], object]) -> int:
    """In a thread: tells its first line, and returns its exit code."""
    with process:
        assert process.stdout is not None  # noqa: S101 - a pipe
        if line := process.stdout.readline():
            heard(line.decode(errors="replace").rstrip("\n"))
        while process.stdout.read(65_536):
            pass
    return process.returncode


async def _end_process(process: subprocess.Popen[bytes], ending: asyncio.Future[int]) -> None:
    process.terminate()
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        process.kill()
        await asyncio.wait([ending])
        raise


async def _all_set(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        await event.wait()


async def _all_work(events: Iterable[asyncio.Event], keepers: Sequence[asyncio.Task[None]]) -> None:
    everybody = asyncio.create_task(_all_set(events))
    try:
        await asyncio.wait([everybody, *keepers], return_when=asyncio.FIRST_COMPLETED)
    finally:
        everybody.cancel()
    _raise_failure(keepers)


async def _until_one_fails(keepers: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.wait(keepers, return_when=asyncio.FIRST_COMPLETED)
    _raise_failure(keepers)


def _raise_failure(keepers: Sequence[asyncio.Task[None]]) -> None:
    for keeper in keepers:
        if keeper.done():
            keeper.result()


async def _end(keepers: Sequence[asyncio.Task[None]]) -> None:
    for keeper in keepers:
        keeper.cancel()
    try:
        await asyncio.wait(keepers)
    except asyncio.CancelledError:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.wait(keepers)
        raise


def _how(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    with suppress(ValueError):
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it was ended by signal {-code}"
