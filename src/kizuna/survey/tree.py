"""Keys by the parts of their names, as a tree that stays small however many there are. Does no I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kizuna.survey.known import shown

if TYPE_CHECKING:
    from kizuna.store.inspection.looking import Facts

OTHERS = "…"
_MOST_BRANCHES = 100
"""Below one branch: further names are counted together."""
_MOST_IN_ALL = 20_000
_SEPARATOR = re.compile("[:/]")
_TAG = re.compile(r"(\{[^}]+\})[:/]|(\{[^}]*:\d+\})")
_SHARD = re.compile(r"\{(.*):\d+\}")
# Tickets and backfills have no name but their id, and would all be branches of their own.
_ID = re.compile(r"(?<![0-9a-z])[0-9a-v]{19}[0g]\Z")


@dataclass
class Branch:
    keys: int = 0
    with_ttl: int = 0
    types: Counter[str] = field(default_factory=Counter)
    branches: dict[str, Branch] = field(default_factory=dict)

    def add(self, facts: Facts) -> None:
        self.keys += 1
        self.with_ttl += facts.ttl_ms is not None
        self.types[facts.type] += 1

    def merge(self, other: Branch) -> None:
        self.keys += other.keys
        self.with_ttl += other.with_ttl
        self.types += other.types


class Line(NamedTuple):
    """One branch as it is drawn."""

    depth: int
    name: str
    last: bool
    branch: Branch


class Tree:
    """`depth` is the number of parts that are told apart; the root is the first. Shards count as one root."""

    def __init__(self, *, depth: int = 3) -> None:
        self.top = Branch()
        self._depth = depth
        self._branches = 0

    def add(self, facts: Iterable[Facts]) -> None:
        for one in facts:
            self._add(one)

    def lines(self, most: int = _MOST_BRANCHES + 1) -> Iterator[Line]:
        """Branch after branch, each before those below it; of more than `most` beside each other, the small ones
        together."""
        yield from _lines(self.top, 0, most)

    def _add(self, facts: Facts) -> None:
        branch = self.top
        branch.add(facts)
        for part in parts_of(facts.key)[: self._depth]:
            branch = self._below(branch, part)
            branch.add(facts)

    def _below(self, branch: Branch, name: str) -> Branch:
        found = branch.branches.get(name)
        if found is None:
            if len(branch.branches) >= _MOST_BRANCHES or self._branches >= _MOST_IN_ALL:
                return branch.branches.setdefault(OTHERS, Branch())
            self._branches += 1
            found = branch.branches[name] = Branch()
        return found


def parts_of(key: bytes) -> Sequence[str]:
    """The parts of a name; the number of a shard is left out of its root, and ids of tickets are all one."""
    text = _ID.sub("<id>", shown(key))
    tag = _TAG.match(text)
    if tag is None:
        return _SEPARATOR.split(text)
    root = tag[1] or tag[2]
    shard = _SHARD.fullmatch(root)
    return [f"{{{shard[1]}:*}}" if shard else root, *_SEPARATOR.split(text[tag.end() :])]


def _lines(branch: Branch, depth: int, most: int) -> Iterator[Line]:
    below = sorted(_largest(branch.branches, most).items(), key=lambda item: (item[0] == OTHERS, item[0]))
    for number, (name, one) in enumerate(below, 1):
        yield Line(depth, name, number == len(below), one)
        yield from _lines(one, depth + 1, most)


def _largest(branches: dict[str, Branch], most: int) -> dict[str, Branch]:
    if len(branches) <= most:
        return branches
    # Which of equals are named should not change from one look to the next.
    ordered = sorted(branches.items(), key=lambda item: (item[0] == OTHERS, -item[1].keys, item[0]))
    others = Branch()
    for _, small in ordered[most - 1 :]:
        others.merge(small)
    return dict(ordered[: most - 1]) | {OTHERS: others}
