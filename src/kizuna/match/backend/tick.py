"""What a tick has to do, and what it did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kizuna.match.matches import Assigner, Match, MatchFunction
    from kizuna.match.pools import Profile


@dataclass(frozen=True)
class Added:
    """A profile, the function that makes its matches, and who finds servers for them."""

    profile: Profile
    function: MatchFunction
    assigner: Assigner
    name: str


@dataclass
class Tick:
    """What a tick did. `matches` are those whose tickets were assigned, or wait for their backfill."""

    fetched: int = 0
    matched: int = 0
    """Tickets of the matches that stood."""
    assigned: int = 0
    released: int = 0
    """Tickets that others may match now."""
    busy: int = 0
    """Tickets that somebody else was matching."""
    matches: list[Match] = field(default_factory=list)
    failures: list[tuple[str, BaseException]] = field(default_factory=list)
    """What failed, and how."""
    took_s: float = 0.0

    def add(self, other: Tick) -> None:
        self.fetched += other.fetched
        self.matched += other.matched
        self.assigned += other.assigned
        self.released += other.released
        self.busy += other.busy
        self.matches += other.matches
        self.failures += other.failures
