"""Which parties fill teams to the last place, by their sizes alone. Pure, and remembered.

two teams of 5 from parties {1: 3, 2: 2, 3: 1}   ->   (3, 2), (2, 1, 1, 1)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

Counts = tuple[int, ...]
"""How many parties there are of 0, 1, 2, … players."""
Seating = tuple[tuple[int, ...], ...]
"""For each team the sizes of its parties, the largest first."""

# Only many teams of large parties that hardly fit come near it; then they count as not fitting.
_TRIES = 500


@lru_cache(maxsize=1 << 16)
def seat(teams: int, size: int, counts: Counts, must: int) -> Seating | None:
    """Full teams, with a party of `must` in the first; None if that cannot be. Large parties first: the small ones fit
    in anywhere later."""
    if not counts[must] or sum(players * count for players, count in enumerate(counts)) < teams * size:
        return None
    return _Search(size).teams(teams, _less(counts, (must,)), must)


def sums(counts: Counts, most: int) -> list[int]:
    """For each size, as bits, what parties of at most this size add up to; `most` counts and no more."""
    within = (2 << most) - 1
    reached, bits = [1], 1
    for players, count in enumerate(counts[1:], 1):
        for _ in range(min(count, most // players)):
            bits |= bits << players & within
        reached.append(bits)
    return reached


class _Search:
    def __init__(self, size: int) -> None:
        self._size = size
        self._tries = 0
        self._dead: set[tuple[int, Counts]] = set()

    def teams(self, left: int, counts: Counts, seated: int = 0) -> Seating | None:
        """So many full ones; of the first, `seated` places are taken by a party of that size."""
        if not left:
            return ()
        if (left, counts) in self._dead:
            return None
        first = (seated,) if seated else ()
        for parties in self._parties(self._size - seated, counts):
            self._tries += 1
            rest = self.teams(left - 1, _less(counts, parties))
            if rest is not None:
                return (first + parties, *rest)
            if self._tries > _TRIES:
                return None
        if not seated:
            self._dead.add((left, counts))
        return None

    def _parties(self, room: int, counts: Counts) -> Iterator[tuple[int, ...]]:
        reached = sums(counts, room)
        return _made_up(room, counts, reached, min(room, len(counts) - 1))


def _made_up(room: int, counts: Counts, reached: list[int], largest: int) -> Iterator[tuple[int, ...]]:
    """Every way to fill the room with parties of at most `largest`."""
    if not room:
        yield ()
    elif largest:
        for number in range(min(counts[largest], room // largest), -1, -1):
            rest = room - number * largest
            if reached[largest - 1] >> rest & 1:
                for smaller in _made_up(rest, counts, reached, largest - 1):
                    yield (largest,) * number + smaller


def _less(counts: Counts, parties: tuple[int, ...]) -> Counts:
    left = list(counts)
    for players in parties:
        left[players] -= 1
    return tuple(left)
