"""What a verification found. No I/O here."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

Kind = Literal[
    "no item",
    "no context",
    "foreign",
    "not in index",
    "wrong score",
    "wrong place",
    "unreadable",
    "no end",
    "wrong end",
    "incomplete",
    "outdated",
    "wrong type",
    "wrong shard",
    "in two shards",
    "left over",
]

MEANING: dict[Kind, str] = {
    "no item": "it stands in this index, and there is no such item",
    "no context": "it stands in this index, and there is no such context",
    "foreign": "it stands in this index, and belongs in another",
    "not in index": "it belongs in this index, and is not in it",
    "wrong score": "its score in this index is another than its time",
    "wrong place": "what is noted about where it stands is not where it belongs",
    "unreadable": "what is noted about where it stands cannot be read",
    "no end": "it would stay for ever",
    "wrong end": "it ends at another time than it says",
    "incomplete": "a field is missing, or cannot be read",
    "outdated": "its generation was raised, and nobody is about to end it",
    "wrong type": "the key holds something else than it should",
    "wrong shard": "it is in another shard than its context",
    "in two shards": "there is another item of the same id",
    "left over": "work that was begun does not go on",
}

# What no program should decide: whose the thing is that is in the way, and where somebody will look for an item.
ONLY_BY_HAND: frozenset[Kind] = frozenset({"wrong type", "wrong shard"})


class Index(Struct, frozen=True):
    """An index of items or of contexts: its key, and what its members have in common."""

    root: str
    key: str
    of: Literal["item", "context"]
    type: Literal["set", "zset", "hash"]
    field: str = ""
    """The field by which it is; empty: all are in it."""
    name: str = ""
    """What the field of its members is."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is off, and was so twice, with a while in between."""

    kind: Kind
    key: str
    """Where: the index, or the item itself."""
    id: str = ""
    """The item, context or name; empty if it is about the whole key."""
    there: str = ""
    should: str = ""
    root: str
    of: Literal["item", "context", "key", "work"]
    index: Index | None = None
    """If it was found as a member of it."""

    @property
    def can_be_mended(self) -> bool:
        return self.kind not in ONLY_BY_HAND

    def __str__(self) -> str:
        what = f"{self.of} {self.id!r} in {self.key}" if self.id else self.key
        details = [f"{word} {text}" for word, text in (("is", self.there), ("should be", self.should)) if text]
        return f"{what}: {MEANING[self.kind]}" + (f" ({', '.join(details)})" if details else "")

    def as_dict(self) -> dict[str, Any]:
        names = ("kind", "key", "id", "there", "should", "root")
        return {name: getattr(self, name) for name in names} | {"of": self.of, "by_hand": not self.can_be_mended}


class Report(Struct, kw_only=True):
    """True if everything is exact."""

    items: int = 0
    contexts: int = 0
    indexes: int = 0
    members: int = 0
    """Of all indexes, together."""
    findings: list[Finding] = msgspec.field(default_factory=list)
    """What is off; after a repair, what still is."""
    repaired: list[Finding] = msgspec.field(default_factory=list)
    """What was off, and is no more."""
    not_looked_at: int = 0
    """Suspicions beyond those that fit into one report: repair these, and verify again."""

    @property
    def exact(self) -> bool:
        return not self.findings and not self.not_looked_at

    def __bool__(self) -> bool:
        return self.exact

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "exact": self.exact,
            "items": self.items,
            "contexts": self.contexts,
            "indexes": self.indexes,
            "members": self.members,
            "findings": [finding.as_dict() for finding in self.findings],
            "repaired": [finding.as_dict() for finding in self.repaired],
            "not_looked_at": self.not_looked_at,
        }
