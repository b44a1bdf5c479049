"""A prefix with nothing behind it, as matchmaking has it: which keys are recognisably ours. Does no I/O.

Without any prefix, every key on the server begins like ours. So a key is taken for ours by its whole name only, and
one that is nothing but an id, if the id is of the kind that we make. A prefix that ends with a separator, `mm1:` say,
or with the tag of a shard, keeps its keys apart from those of others: all behind it are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kizuna.store.scanning import glob_of
from kizuna.store.scanning.globs import matcher

if TYPE_CHECKING:
    from kizuna.catalogue import Family
    from kizuna.store.keys import Roots

ID = "[0-9a-v]" * 19 + "[0g]"
"""A glob for the ids of tickets and backfills, see `match/xids.py`."""
_IDS = frozenset({"id", "ticket"})
_is_id = matcher([ID])


class Found(NamedTuple):
    """A key that belongs to a family."""

    family: Family
    root: str
    names: dict[str, str]


class Bare:
    def __init__(self, roots: Roots, families: Sequence[Family]) -> None:
        self.roots = roots
        self._families = families
        self._prefix = roots.root if roots.shards == 1 else f"{{{roots.root}:*}}"
        """As a glob."""

    @property
    def is_apart(self) -> bool:
        """Whether everything behind the prefix is ours."""
        return bool(self._prefix) and not self._prefix[-1].isalnum()

    def find(self, text: str) -> Found | None:
        for root in self._roots_of(text):
            for family in self._families:
                names = family.key.parse(root, text)
                if family.key.type != "channel" and names is not None and self._are_ours(names):
                    return Found(family, root, names)
        return None

    def is_below(self, text: str) -> bool:
        """Whether it is ours, whatever it may be."""
        return self._is_behind(text) or self.find(text) is not None

    def keys_meant(self, text: str) -> list[str]:
        """Those of this name that are ours."""
        return [root + text for root in self.roots.all if self.find(root + text)]

    def globs(self) -> list[str]:
        """All that is ours, and nothing else."""
        behind = [f"{self._prefix}*"] if self.is_apart else []
        return behind + [self.glob(family) for family in self._families if family.key.before_root or not self.is_apart]

    def glob(self, family: Family) -> str:
        """All of one family, and nothing else."""
        glob = glob_of(family.key, self.roots)
        return glob if self.is_apart or not _IDS.intersection(family.key.names) else glob.replace("*", ID)

    def lookalikes(self) -> list[str]:
        root = self.roots.root
        return [*self.globs(), *([f"{root}*", f"{{{root}*"] if root else [])]

    def stems(self) -> list[str]:
        """Patterns for what keys begin with; without a prefix, everybody's. A prefix that does not keep its keys apart
        may also have been given."""
        behind = [before + self._prefix for before in self._befores()]
        return behind if self.is_apart or not self._prefix else [*behind, ""]

    def is_named_in(self, text: str) -> bool:
        """Whether this is the beginning of a key of ours, and not a name that the prefix is to be put before."""
        start = self._prefix.removesuffix("*}")
        return text.startswith(tuple(filter(None, [*self._befores(), start if self.is_apart else ""])))

    def _befores(self) -> Iterator[str]:
        yield from dict.fromkeys(["", *(family.key.before_root for family in self._families)])

    def _roots_of(self, text: str) -> Sequence[str]:
        if self.roots.shards == 1:
            return self.roots.all
        tag = text[text.find("{") : text.find("}") + 1]
        return [tag] if tag in self.roots.all else []

    def _is_behind(self, text: str) -> bool:
        return self.is_apart and text.startswith(self.roots.all)

    def _are_ours(self, names: dict[str, str]) -> bool:
        return self.is_apart or all(_is_id(name.encode()) for place, name in names.items() if place in _IDS)
