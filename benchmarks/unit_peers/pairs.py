"""A requester and a responder of one peer, with their server: started once, and ordered to call in each round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from operator import sub
from pathlib import Path
from typing import NamedTuple

from benchmarks.peer_processes import PeerProcess, cpu_s_of
from benchmarks.unit_peers.entries import Entry
from kizuna.testing.servers import HOST, ServerProcess, free_port

MODULE = "benchmarks.unit_peers"


class Shares(NamedTuple):
    """Of requester, responder and server."""

    requester: float
    responder: float
    server: float


@dataclass(frozen=True)
class Round:
    calls: int
    seconds: float
    p50_ms: float
    p99_ms: float
    failures: int
    last_failure: str
    cpu_s: Shares


@dataclass(frozen=True)
class Place:
    """A server that nobody else uses."""

    server: ServerProcess

    @property
    def url(self) -> str:
        return self.server.url

    def empty(self) -> None:
        """At once: what would end by itself in the next minute would end while others are measured."""
        self.server.call("FLUSHALL", "SYNC", timeout_s=60)


@dataclass(frozen=True)
class Pair:
    requester: PeerProcess
    responder: PeerProcess
    server_cpu_s: Callable[[], float]

    def cpu_s(self) -> Shares:
        return Shares(self.requester.cpu_s(), self.responder.cpu_s(), self.server_cpu_s())

    def call(self, in_flight: int, seconds: float) -> Round:
        """Raises `PeerFailed` if the requester does not answer; calls that fail are counted."""
        before_s = self.cpu_s()
        facts = self.requester.order("call_together", in_flight=in_flight, seconds=seconds)
        return Round(**facts, cpu_s=Shares(*map(sub, self.cpu_s(), before_s)))


@contextmanager
def pair_of(entry: Entry, place: Place | None, folder: Path) -> Iterator[Pair]:
    """Entered when the responder answers. Without a place, the peer brings its own server, or needs none.

    Raises `PeerFailed`.
    """
    url = place.url if place else f"{HOST}:{free_port()}"
    with ExitStack() as stack:

        def start(role: str) -> PeerProcess:
            process = PeerProcess(
                MODULE, entry.peer, role, url=url, folder=folder, loop=entry.loop, packages=entry.packages
            )  # fmt: skip
            return stack.enter_context(process)

        def server_cpu_s() -> Callable[[], float]:
            if place:
                return partial(cpu_s_of, place.server.pid)
            return start("server").cpu_s if entry.server == "its own" else lambda: 0.0

        pair = Pair(server_cpu_s=server_cpu_s(), responder=start("responder"), requester=start("requester"))
        pair.responder.order("stand")
        yield pair
