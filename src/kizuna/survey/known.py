"""The roots in use and the families below them: which keys are ours, and what each of them is. Does no I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from kizuna.catalogue import COMPONENTS, Family, all_families
from kizuna.store.keys import Roots
from kizuna.store.scanning import Wanted
from kizuna.store.scanning.globs import has_wildcards
from kizuna.survey.bare import Bare, Found
from kizuna.units.paths import lowered

if TYPE_CHECKING:
    from kizuna.settings import Settings

__all__ = ["Found", "Known", "shown"]


class Known:
    """What these settings say about where keys begin."""

    def __init__(self, settings: Settings) -> None:
        self.roots = {component: _roots(settings, component) for component in COMPONENTS}
        """Of each component."""

    @cached_property
    def bare(self) -> dict[str, Bare]:
        """The components whose roots are plain prefixes, with nothing behind them."""
        families = defaultdict[str, list[Family]](list)
        for family in all_families():
            if not family.key.joined_by:
                families[family.component].append(family)
        return {component: Bare(self.roots[component], of_it) for component, of_it in families.items()}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The roots as they are set, without shards; of prefixes, those that are not empty."""
        return tuple(
            dict.fromkeys([*self._joined, *(bare.roots.root for bare in self.bare.values() if bare.roots.root)])
        )

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

    def everything(self) -> list[str]:
        """Patterns for all that is ours, and for nothing else."""
        below = [f"{stem}*" for name in self._joined for stem in self.stems_of(name)]
        return [*below, *(glob for bare in self.bare.values() for glob in bare.globs())]

    def keys_meant(self, text: str) -> list[str]:
        """The keys that have this name below a root: `queue:high` may be `poppo:queue:high`."""
        joined = [root + by + text for root in sorted(self._name_of) for by in self._separators[self._name_of[root]]]
        return [*joined, *(key for bare in self.bare.values() for key in bare.keys_meant(text))]

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
        return next(filter(None, (bare.find(text) for bare in self.bare.values())), None)

    def wanted(self, *given: str) -> Wanted:
        """The keys below the roots that patterns are meant for; of none given, all of them.

        `lock:issue:*` means those below every root, in all shards; `lock` or `unit_a/req`, a word without wildcards,
        the key of that name and all below it. A root may stand before it: then it is meant below that root only.
        """
        patterns = dict.fromkeys(pattern for text in given or ("*",) for pattern in self._expanded(text))
        return Wanted(list(patterns), self.everything())

    def lookalikes(self) -> Wanted:
        """Everything that begins like a root, also what is not below it."""
        joined = [pattern for name in self._joined for pattern in (f"{name}*", f"{{{name}*")]
        return Wanted([*joined, *(pattern for bare in self.bare.values() for pattern in bare.lookalikes())])

    def is_below(self, key: bytes) -> bool:
        """Whether the key is below a root, in use or not, as one of its shards or plainly."""
        text = key.decode(errors="backslashreplace")
        return text.startswith(self._stems) or any(bare.is_below(text) for bare in self.bare.values())

    def joined_root_of(self, text: str) -> str | None:
        """The root, as it is set, of a key that is below one and has something between it and the rest."""
        return next((name for name in self._joined if text.startswith((f"{name}:", f"{name}/", f"{{{name}"))), None)

    # -- inside -----------------------------------------------------------------------------------------

    @cached_property
    def _joined(self) -> tuple[str, ...]:
        """The roots that have something behind them."""
        return tuple(dict.fromkeys(roots.root for component, roots in self.roots.items() if component not in self.bare))

    @cached_property
    def _families(self) -> dict[str, dict[str, list[Family]]]:
        """By root, and then by the first part, if that is text; those that begin with a name are below ''."""
        found: dict[str, dict[str, list[Family]]] = defaultdict(lambda: defaultdict(list))
        for family in all_families():
            if family.key.type != "channel" and family.component not in self.bare:
                first = family.key.parts[0]
                for root in self.roots[family.component].all:
                    found[root]["" if first.name else first.before].append(family)
        return found

    @cached_property
    def _separators(self) -> dict[str, list[str]]:
        """What stands behind each root: several where components share it that are joined differently."""
        families = [family for family in all_families() if family.component not in self.bare]
        joined = dict.fromkeys((self.roots[family.component].root, family.key.separator) for family in families)
        return {name: [separator for root, separator in joined if root == name] for name in self._joined}

    @cached_property
    def _name_of(self) -> dict[str, str]:
        """The root as it is set, of each that has something behind it."""
        joined = [roots for component, roots in self.roots.items() if component not in self.bare]
        return {root: roots.root for roots in joined for root in roots.all}

    @cached_property
    def _plain(self) -> tuple[str, ...]:
        # The longest first: one root may be the beginning of another.
        plain = {root for root in self._name_of if not root.startswith("{")}
        return tuple(sorted(plain, key=len, reverse=True))

    @cached_property
    def _stems(self) -> tuple[str, ...]:
        return tuple(start + name + end for name in self._joined for start in ("", "{") for end in (":", "/"))

    def _roots_of(self, key: str) -> Iterator[str]:
        if key.startswith("{"):
            tag = key[: key.find("}") + 1]
            if tag in self._families:
                yield tag
        yield from (root for root in self._plain if key.startswith(root) and key[len(root) : len(root) + 1] in ":/")

    def _expanded(self, text: str) -> Iterator[str]:
        named = self._named_in(text)
        stands_as_it_is = self._begins_a_key(text)
        if stands_as_it_is:
            yield from _with_all_below("", text)
        if named is not None:
            for stem in self._stems_meant(named, text[len(named) :][:1]):
                yield from _with_all_below(stem, text[len(named) + 1 :] or "*")
        elif not stands_as_it_is:
            for stem in self._all_stems():
                yield from _with_all_below(stem, text)

    def _begins_a_key(self, text: str) -> bool:
        """In a shard, or behind a prefix."""
        shards = tuple(f"{{{name}" for name in self._joined)
        return text.startswith(shards) or any(bare.is_named_in(text) for bare in self.bare.values())

    def _all_stems(self) -> Iterator[str]:
        yield from (stem for name in self._joined for stem in self.stems_of(name))
        yield from (stem for bare in self.bare.values() for stem in bare.stems())

    def _named_in(self, text: str) -> str | None:
        """The root that the text begins with; the longest, as one may be the beginning of another."""
        named = (name for name in self._joined if text == name or text.startswith((f"{name}:", f"{name}/")))
        return max(named, key=len, default=None)

    def _stems_meant(self, name: str, separator: str) -> list[str]:
        """Those with this separator; all, if the root has none such: then it was not meant to tell them apart."""
        stems = self.stems_of(name)
        return [stem for stem in stems if stem[-1] == separator] or stems


def _with_all_below(stem: str, rest: str) -> Sequence[str]:
    pattern, separator = stem + rest, "/" if stem.endswith("/") else ":"
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
