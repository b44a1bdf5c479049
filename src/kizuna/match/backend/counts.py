"""What a backend counts while it works."""

from __future__ import annotations

from dataclasses import dataclass, field

from kizuna.metrics import Histogram

WAIT_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
PEER_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Those that minimatch's users have in their graphs."""


def _peer_histogram() -> Histogram:
    return Histogram(PEER_BOUNDS_S)


@dataclass
class PoolState:
    """Of one pool, when it was last looked at."""

    waiting: int = 0
    oldest_s: float = 0.0


@dataclass
class Counts:
    ticks: int = 0
    tickets: int = 0
    """All that wait or are being matched, when that was last counted."""
    failures: int = 0
    """Of match functions, evaluators and assigners."""
    fetched: int = 0
    matches: int = 0
    assigned: int = 0
    """Tickets that got an assignment."""
    proposed: int = 0
    """Tickets for which an assigner had one, whether they could be assigned or not."""
    refused: int = 0
    """Groups of which a ticket was gone or assigned."""
    released: int = 0
    given_back: int = 0
    """Tickets of backends that died, or of answers that were lost."""
    delivered_late: int = 0
    """Assignments that somebody had left in the outbox."""
    tick_s: Histogram = field(default_factory=Histogram)
    wait_s: Histogram = field(default_factory=lambda: Histogram(WAIT_BOUNDS_S))
    """How long tickets had waited that were assigned."""
    fetch_s: Histogram = field(default_factory=_peer_histogram)
    function_s: dict[str, Histogram] = field(default_factory=dict)
    """By profile."""
    assigner_s: Histogram = field(default_factory=_peer_histogram)
    assign_s: Histogram = field(default_factory=_peer_histogram)
    seen: dict[str, dict[tuple[str, str], PoolState]] = field(default_factory=dict)
    """By prefix, then by profile and pool."""

    @property
    def pools(self) -> dict[tuple[str, str], PoolState]:
        """By profile and pool, of all shards together."""
        together: dict[tuple[str, str], PoolState] = {}
        for of_shard in self.seen.values():
            for names, state in of_shard.items():
                before = together.get(names, PoolState())
                oldest_s = max(before.oldest_s, state.oldest_s)
                together[names] = PoolState(before.waiting + state.waiting, oldest_s)
        return together

    def saw(self, prefix: str, profile: str, pool: str, state: PoolState) -> None:
        self.seen.setdefault(prefix, {})[profile, pool] = state

    def saw_nobody(self, prefix: str) -> None:
        """Pools in which nobody waits any more are not to look as they did when somebody did."""
        for names in self.seen.get(prefix, {}):
            self.seen[prefix][names] = PoolState()

    def took(self, profile: str, seconds: float) -> None:
        if profile not in self.function_s:
            self.function_s[profile] = _peer_histogram()
        self.function_s[profile].observe(seconds)
