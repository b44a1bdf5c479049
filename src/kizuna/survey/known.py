"""The roots in use and the families below them: which keys are ours, and what each of them is. Does no I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from kizuna.catalogue import COMPONENTS, Family, all_families
from kizuna.store.keys import Roots
from kizuna.store.scanning.globs import has_wildcards
from kizuna.units.paths import lowered

if TYPE_CHECKING:
    from kizuna.settings import Settings


class Found(NamedTuple):
    """A key that belongs to a family."""

    family: Family
    root: str
    names: dict[str, str]


class Known:
    """What these settings say about where keys begin."""

    def __init__(self, settings: Settings) -> None:
        self.roots = {component: _roots(settings, component) for component in COMPONENTS}
        """Of each component."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The roots as they are set, without shards."""
        return tuple(dict.fromkeys(roots.root for roots in self.roots.values()))

    @cached_property
    def roots_in_use(self) -> frozenset[str]:
        """All of them, each shard by itself."""
        return frozenset(root for roots in self.roots.values() for root in roots.all)

    def shards_of(self, name: str) -> int:
        """Over how many roots the keys below this one are spread; components may share it."""
        return max(roots.shards for roots in self.roots.values() if roots.root == name)

    def stems_of(self, name: str) -> list[str]:
        """Patterns for what the keys below a root, as it is set, begin with: `poppo:` and `{poppo:*}:`, or `muf/`."""
        # What is joined by "/" is never spread over shards: each of its keys stands alone.
        shards = [f"{{{name}:*}}:"] if ":" in self._separators[name] else []
        return [*(name + separator for separator in self._separators[name]), *shards]

    def keys_meant(self, text: str) -> list[str]:
        """The keys that have this name below a root: `queue:high` may be `poppo:queue:high`."""
        return [root + by + text for root in sorted(self.roots_in_use) for by in self._separators[self._name_of[root]]]

    def find(self, key: bytes) -> Found | None:
        """The family of a key, or None: then nobody has declared it. Paths of units are in lower case."""
        try:
            text = key.decode()
        except UnicodeDecodeError:
            return None
        for root in self._roots_of(text):
            first = text[len(root) + 1 :].partition(":")[0].partition("/")[0]
            for family in (*self._families[root].get(first, ()), *self._families[root].get("", ())):
                names = family.key.parse(root, text)
                if names is not None and (family.component != "units" or text == lowered(text)):
                    return Found(family, root, names)
        return None

    def patterns(self, *given: str) -> list[str]:
        """Patterns for keys below the roots; of none given, for all of them.

        `lock:issue:*` means those below every root, in all shards; `lock` or `unit_a/req`, a word without wildcards,
        the key of that name and all below it. A root may stand before it: then it is meant below that root only.
        """
        return list(dict.fromkeys(pattern for text in given or ("*",) for pattern in self._expanded(text)))

    def lookalikes(self) -> list[str]:
        """Patterns for everything that begins like a root, also for what is not below it."""
        return [pattern for name in self.names for pattern in (f"{name}*", f"{{{name}*")]

    def is_below(self, key: bytes) -> bool:
        """Whether the key is below a root, in use or not, as one of its shards or plainly."""
        text = key.decode(errors="backslashreplace")
        return any(text.startswith(stem) for stem in self._stems)

    # -- inside -----------------------------------------------------------------------------------------

    @cached_property
    def _families(self) -> dict[str, dict[str, list[Family]]]:
        """By root, and then by the first part, if that is text; those that begin with a name are below ''."""
        found: dict[str, dict[str, list[Family]]] = defaultdict(lambda: defaultdict(list))
        for family in all_families():
            if family.key.type != "channel":
                first = family.key.parts[0]
                for root in self.roots[family.component].all:
                    found[root]["" if first.name else first.before].append(family)
        return found

    @cached_property
    def _separators(self) -> dict[str, list[str]]:
        """What stands behind each root: several where components share it that are joined differently."""
        joined = dict.fromkeys((self.roots[family.component].root, family.key.separator) for family in all_families())
        return {name: [separator for root, separator in joined if root == name] for name in self.names}

    @cached_property
    def _name_of(self) -> dict[str, str]:
        return {root: roots.root for roots in self.roots.values() for root in roots.all}

    @cached_property
    def _plain(self) -> tuple[str, ...]:
        # The longest first: one root may be the beginning of another.
        plain = {root for root in self.roots_in_use if not root.startswith("{")}
        return tuple(sorted(plain, key=len, reverse=True))

    @cached_property
    def _stems(self) -> tuple[str, ...]:
        return tuple(start + name + end for name in self.names for start in ("", "{") for end in (":", "/"))

    def _roots_of(self, key: str) -> Iterator[str]:
        if key.startswith("{"):
            tag = key[: key.find("}") + 1]
            if tag in self._families:
                yield tag
        yield from (root for root in self._plain if key.startswith(root) and key[len(root) : len(root) + 1] in ":/")

    def _expanded(self, text: str) -> Iterator[str]:
        if text.startswith(tuple(f"{{{name}" for name in self.names)):
            yield from _with_all_below("", text)
            return
        named = self._named_in(text)
        if named is None:
            stems, rest = [stem for name in self.names for stem in self.stems_of(name)], text
        else:
            stems, rest = self._stems_meant(named, text[len(named) :][:1]), text[len(named) + 1 :] or "*"
        for stem in stems:
            yield from _with_all_below(stem, rest)

    def _named_in(self, text: str) -> str | None:
        """The root that the text begins with; the longest, as one may be the beginning of another."""
        named = (name for name in self.names if text == name or text.startswith((f"{name}:", f"{name}/")))
        return max(named, key=len, default=None)

    def _stems_meant(self, name: str, separator: str) -> list[str]:
        """Those with this separator; all, if the root has none such: then it was not meant to tell them apart."""
        stems = self.stems_of(name)
        return [stem for stem in stems if stem[-1] == separator] or stems


def _with_all_below(stem: str, rest: str) -> Sequence[str]:
    pattern, separator = stem + rest, stem[-1:] or ":"
    is_word = not has_wildcards(rest) and not pattern.endswith(separator)
    return [pattern, f"{pattern}{separator}*"] if is_word else [pattern]


def _roots(settings: Settings, component: str) -> Roots:
    root = getattr(settings.roots, COMPONENTS[component])
    shards = getattr(getattr(settings, component, None), "shards", 1)
    # Units write everything in lower case, the root as well.
    return Roots(lowered(root) if component == "units" else root, shards)


def shown(key: bytes | str) -> str:
    """The key as text for people, on one line: what cannot be shown is escaped."""
    text = key.decode(errors="backslashreplace") if isinstance(key, bytes) else key
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
