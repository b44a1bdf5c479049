"""Which keys memory has below a root, and what each is to a verification. No I/O here."""

from __future__ import annotations

from typing import Literal, NamedTuple

from kizuna.memory import keys
from kizuna.memory.raw_names import sent, shown
from kizuna.memory.scripts import FAMILIES
from kizuna.memory.verifying.report import Index
from kizuna.store.keys import Key, KeyType, Roots

_Of = Literal["item", "context"]
# By which field each index is; empty: all are in it.
_INDEXES: tuple[tuple[Key, _Of, str], ...] = (
    (keys.ITEMS_OF_TYPE, "item", "type"),
    (keys.ITEMS_OF_CONTEXT, "item", "contextId"),
    (keys.ITEMS_OF_PRIORITY, "item", "priority"),
    (keys.ITEMS_EXPIRY, "item", ""),
    (keys.ITEM_PLACES, "item", ""),
    (keys.TYPE_ORDER, "item", "type"),
    (keys.CONTEXT_ORDER, "item", "contextId"),
    (keys.DEPENDENTS, "item", "dependsOn"),
    (keys.ITEMS_OF_GENERATION, "item", "generation"),
    (keys.CONTEXTS_OF_TYPE, "context", "type"),
    (keys.CONTEXTS_ACTIVE, "context", ""),
    (keys.CONTEXTS_EXPIRY, "context", ""),
    (keys.CONTEXT_PLACES, "context", ""),
)
# What is begun by being noted here, and whose members go until it is done.
WORK: dict[Key, Key] = {
    keys.CHANGED: keys.DEPENDENTS,
    keys.GENERATIONS_RAISED: keys.ITEMS_OF_GENERATION,
    keys.CONTEXTS_ENDING: keys.ITEMS_OF_CONTEXT,
}


class KnownKey(NamedTuple):
    """What a key is: an item or a context, by its id; an index; or something else, that has to be of a type."""

    root: str
    family: Key
    name: bytes
    """The id, or whose index it is."""

    @property
    def key(self) -> str:
        return self.root + self.family.beginning + shown(self.name)

    @property
    def type(self) -> KeyType:
        return self.family.type

    def as_index(self) -> Index | None:
        """None if it is no index."""
        for family, of, field in _INDEXES:
            if family is self.family:
                return Index(self.root, self.key, of, _type_of(family), field, shown(self.name))
        return None


def glob_of(roots: Roots) -> str:
    """Every key of memory below the roots; perhaps others besides, `known_key_of` tells."""
    return f"{roots.root}:memory:*" if roots.shards == 1 else f"{{{roots.root}:*}}:memory:*"


def known_key_of(roots: Roots, key: bytes) -> KnownKey | None:
    """None if it is not one of ours."""
    root = roots.root if roots.shards == 1 else shown(key[: key.find(b"}") + 1])
    if root not in roots.all:
        return None
    rest = key[len(sent(root)) :]
    for beginning, family in _BEGINNINGS:
        if rest.startswith(beginning) and (family.names or rest == beginning):
            return KnownKey(root, family, rest[len(beginning) :])
    return None


def _type_of(family: Key) -> Literal["set", "zset", "hash"]:
    if family.type == "set" or family.type == "zset" or family.type == "hash":
        return family.type
    raise TypeError(f"{family.pattern} is a {family.type}, and no index")


# Items first: most keys are.
_BEGINNINGS = tuple(
    (family.beginning.encode(), family)
    for family in dict.fromkeys((keys.ITEM, *FAMILIES.values()))
    if family.type != "channel"
)
