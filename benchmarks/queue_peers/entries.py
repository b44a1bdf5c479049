"""Who takes part, and with how many tasks: each measurement of a turn is to take about a second or less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.loops import Loop
from benchmarks.peer_processes import is_installed

OURS, JETSTREAM = "kizuna", "jetstream"


@dataclass(frozen=True)
class Entry:
    peer: str
    title: str
    pushed: int
    """One by one."""
    bulk: int
    """Together."""
    run: int
    """End to end."""
    latencies: int = 80
    loop: Loop = "asyncio"

    @property
    def name(self) -> str:
        return f"{self.title}, {self.loop}" if self.peer in (OURS, JETSTREAM) else self.title

    @property
    def has_own_server(self) -> bool:
        return self.peer == JETSTREAM


def entries(loops: Sequence[Loop], only: Sequence[str] = ()) -> list[Entry]:
    """Ours first. `only` names some of the peers; ours is always there, since all else is told as a ratio to it."""
    found = [
        *(Entry(OURS, "kizuna", 1_500, 30_000, 30_000, latencies=150, loop=loop) for loop in loops),
        *(Entry(JETSTREAM, "JetStream", 1_500, 15_000, 10_000, latencies=150, loop=loop) for loop in loops),
        Entry("dramatiq", "dramatiq", 600, 600, 1_000),
        Entry("huey", "huey", 600, 600, 800),
        Entry("taskiq", "taskiq, streams", 600, 600, 500),
        Entry("saq", "SAQ", 600, 600, 500),
        Entry("arq", "arq, tuned", 600, 600, 500),
        Entry("celery", "Celery", 300, 300, 250),
    ]
    return [entry for entry in found if not only or entry.peer in (OURS, *only)]


PEERS = tuple(dict.fromkeys(entry.peer for entry in entries(["asyncio"]) if entry.peer != OURS))


def can_take_part(entry: Entry) -> bool:
    return entry.peer == OURS or is_installed(entry.peer)
