"""Who takes part, on which event loops and on which server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.loops import Loop
from benchmarks.peer_processes import is_installed

OURS, THIN, PUBSUB, NATS = "kizuna", "thin", "pubsub", "nats"
_OF_THIS_ENVIRONMENT = (OURS, THIN, PUBSUB)

Server = Literal["plain", "append-only", "its own", "none"]
"""plain: without persistence; append-only: with the options of the embedded one; none: the responder is the server."""


@dataclass(frozen=True)
class Entry:
    peer: str
    title: str
    server: Server
    loop: Loop = "asyncio"
    has_choice: bool = True
    """Of the event loop. Who has none takes part once, and is shown with each."""
    rounds_at_most: int = 5

    @property
    def name(self) -> str:
        return self.title if self.has_choice else f"{self.title}, {self.loop}"

    @property
    def packages(self) -> str:
        """The folder of what is installed for it."""
        return "jetstream" if self.peer == NATS else self.peer

    @property
    def can_take_part(self) -> bool:
        return self.peer in _OF_THIS_ENVIRONMENT or is_installed(self.packages)

    @property
    def leaves_keys(self) -> bool:
        return self.peer in (OURS, THIN)

    def is_shown_on(self, loop: Loop) -> bool:
        return self.loop == loop or not self.has_choice


def entries(loops: Sequence[Loop], only: Sequence[str] = ()) -> list[Entry]:
    """In their order: those whose ratio is a goal are next to each other, so that a slow second hits them all.

    `only` names some of the peers; ours is always there, since all else is told as a ratio to it.
    """
    found = [
        *(entry for loop in loops for entry in _on(loop)),
        Entry("grpc", "gRPC aio", "none", has_choice=False),
        # A thousand calls take it three seconds, however short the round.
        Entry("faststream", "FastStream, Redis", "plain", has_choice=False, rounds_at_most=2),
    ]
    return [entry for entry in found if not only or entry.peer in (OURS, *only)]


def _on(loop: Loop) -> Iterator[Entry]:
    yield Entry(OURS, "kizuna", "plain", loop)
    yield Entry(NATS, "NATS, nats-py", "its own", loop)
    yield Entry(PUBSUB, "Redis pub/sub, redis-py", "plain", loop)
    yield Entry(OURS, "kizuna, append-only file", "append-only", loop)
    yield Entry(THIN, "bare keys, no guarantees", "plain", loop)


PEERS = tuple(dict.fromkeys(entry.peer for entry in entries(["asyncio"]) if entry.peer != OURS))
