"""All key families of the system, gathered from every keys.py: one list for people, commands and tests."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from kizuna.settings import RootsSettings
from kizuna.store.keys import Key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Each component that has a keys.py, and the setting in [roots] that says where its keys begin.
COMPONENTS = {
    "store": "system",
    "coordination": "coordination",
    "units": "units",
    "memory": "memory",
    "match": "match",
}


class Family(NamedTuple):
    """A declared family: LOCK_HOLDER of coordination, say, with the root it has unless set otherwise."""

    component: str
    name: str
    key: Key
    root: str

    @property
    def pattern(self) -> str:
        return self.pattern_below(self.root)

    def pattern_below(self, root: str) -> str:
        return self.key.before_root + root + self.key.joined_by + self.key.pattern


@cache
def all_families() -> tuple[Family, ...]:
    return tuple(family for component, setting in COMPONENTS.items() for family in _families(component, setting))


def family_of(key: str | bytes, roots: Iterable[str] = ()) -> Family | None:
    """The family that has this key, below one of these roots, or else below its own default root."""
    looked_below = tuple(roots)
    for family in all_families():
        if any(family.key.parse(root, key) is not None for root in looked_below or (family.root,)):
            return family
    return None


def as_markdown() -> str:
    """The page docs/keys.md."""
    return "\n".join([_INTRODUCTION, *map(_table, COMPONENTS)])


_INTRODUCTION = """\
# Keys

Every key that kizuna writes, with its default root, which `[roots]` in the settings changes. `<name>` stands
for one part of the key, `<name...>` for one or more with the separator in between. A key that *expires* has a
time to live; one that is *removed* is deleted by the step that ends what it stands for; one that *never* ends
is bounded in number and size. A *channel* is the name of a pub/sub channel, and no key; *any* is whatever type the
value has that is kept there.
"""


def _families(component: str, setting: str) -> Iterator[Family]:
    root = getattr(RootsSettings(), setting)
    for name, value in vars(import_module(f"kizuna.{component}.keys")).items():
        if isinstance(value, Key):
            yield Family(component, name, value, root)


def _table(component: str) -> str:
    lines = [f"## {component}", "", "| key | type | ends | meaning |", "|---|---|---|---|"]
    for family in all_families():
        if family.component == component:
            cells = (f"`{family.pattern}`", family.key.type, family.key.ends, family.key.meaning)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
