"""Who takes part, on which event loops and on which server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.loops import Loop
from benchmarks.peer_processes import is_installed

OURS, PLAIN, REDIS_OM, SQLITE = "kizuna", "plain", "redis_om", "sqlite"

Server = Literal["plain", "append-only", "none"]
"""plain: without persistence; append-only: with the options of the embedded one."""


@dataclass(frozen=True)
class Entry:
    peer: str
    title: str
    server: Server
    loop: Loop = "asyncio"
    has_choice: bool = True
    """Of the event loop. Who has none takes part once, and is shown with each."""

    @property
    def name(self) -> str:
        return self.title if self.server != "append-only" else f"{self.title}, append-only file"

    @property
    def packages(self) -> str:
        """The folder of what is installed for it."""
        return self.peer.replace("_", "-")

    @property
    def can_take_part(self) -> bool:
        return self.peer != REDIS_OM or is_installed(self.packages)

    def is_shown_on(self, loop: Loop) -> bool:
        return self.loop == loop or not self.has_choice


def entries(loops: Sequence[Loop], only: Sequence[str] = ()) -> list[Entry]:
    """In their order: those whose ratio is a goal are next to each other, so that a slow second hits them all.

    `only` names some of the peers; ours is always there, since all else is told as a ratio to it.
    """
    found = [
        *(entry for loop in loops for entry in _on(loop, "plain")),
        *_on(loops[-1], "append-only"),
        Entry(REDIS_OM, "redis-om", "plain", has_choice=False),
        Entry(SQLITE, "SQLite", "none", has_choice=False),
    ]
    return [entry for entry in found if not only or entry.peer in (OURS, *only)]


def _on(loop: Loop, server: Server) -> Iterator[Entry]:
    yield Entry(OURS, "kizuna", server, loop)
    yield Entry(PLAIN, "redis-py pipelines", server, loop)


PEERS = tuple(dict.fromkeys(entry.peer for entry in entries(["asyncio"]) if entry.peer != OURS))
