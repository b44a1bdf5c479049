"""Who brings players together: frontends and a backend, in processes of their own, on a server of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from operator import sub
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.loops import Loop
from benchmarks.match_peers.building import NotBuilt, build
from benchmarks.peer_processes import PeerProcess, cpu_s_of
from kizuna.testing.servers import ServerProcess

MODULE = "benchmarks.match_peers"
OURS, MINIMATCH, EMPTY = "kizuna", "minimatch", "empty"
SERVER = {"notify-keyspace-events": "K$gx"}
"""Without persistence; notifications as the embedded server has them, which minimatch does not need."""


class Cpu(NamedTuple):
    """Seconds of those who serve and of the server; or, by a ticket, microseconds."""

    serving: float
    server: float


@dataclass
class System:
    peer: str
    server: ServerProcess
    folder: Path
    loop: Loop
    program: Path | None = None
    """Of Go; else it is of Python."""
    processes: list[PeerProcess] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)

    def start(self, role: str, stack: ExitStack) -> PeerProcess:
        command: list[str | Path] = [self.program, role] if self.program else []
        process = PeerProcess(
            MODULE, self.peer, role, url=self.server.url, folder=self.folder, loop=self.loop, command=command
        )
        return stack.enter_context(process)

    def start_frontends(self, number: int, stack: ExitStack) -> None:
        started = [self.start("frontend", stack) for _ in range(number)]
        self.processes += started
        self.targets += [frontend.order("stand")["target"] for frontend in started]

    def start_backend(self, stack: ExitStack, tick_ms: int) -> None:
        backend = self.start("backend", stack)
        backend.order("run", tick_ms=tick_ms)
        self.processes.append(backend)

    def cpu(self) -> Cpu:
        return Cpu(sum(process.cpu_s() for process in self.processes), cpu_s_of(self.server.pid))

    def cpu_of(self, work: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], Cpu]:
        before = self.cpu()
        facts = work()
        return facts, Cpu(*map(sub, self.cpu(), before))

    def empty(self) -> None:
        self.server.call("FLUSHALL", "SYNC", timeout_s=60)


@dataclass(frozen=True)
class Systems:
    ours: System
    minimatch: System | None
    why_not: str
    """There is no minimatch."""
    game: PeerProcess
    """Plays by gRPC, with each of them."""
    is_game_of_go: bool

    @property
    def all(self) -> list[System]:
        return [self.ours, *([self.minimatch] if self.minimatch else [])]


@contextmanager
def systems(loop: Loop, folder: Path) -> Iterator[Systems]:
    with ExitStack() as stack:

        def system(peer: str, program: Path | None = None) -> System:
            return System(peer, stack.enter_context(ServerProcess(config=SERVER)), folder, loop, program)

        minimatch, why_not = _built("minimatch")
        load, _ = _built("load")
        command = [load] if load else []
        game = PeerProcess(MODULE, "game", "game", url="", folder=folder, loop=loop, command=command)
        yield Systems(
            ours=system(OURS),
            minimatch=system(MINIMATCH, minimatch) if minimatch else None,
            why_not=why_not,
            game=stack.enter_context(game),
            is_game_of_go=load is not None,
        )


def _built(program: str) -> tuple[Path | None, str]:
    try:
        return build(program), ""
    except NotBuilt as reason:
        return None, str(reason)
