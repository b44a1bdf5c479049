"""The roots in use and the families below them: which keys are ours, and what each of them is. Does no I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from kizuna.catalogue import COMPONENTS, Family, all_families
from kizuna.store.keys import Roots
from kizuna.store.scanning.globs import has_wildcards

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

    def find(self, key: bytes) -> Found | None:
        """The family of a key, or None: then nobody has declared it."""
        try:
            text = key.decode()
        except UnicodeDecodeError:
            return None
        for root in self._roots_of(text):
            first = text[len(root) + 1 :].partition(":")[0].partition("/")[0]
            for family in (*self._families[root].get(first, ()), *self._families[root].get("", ())):
                names = family.key.parse(root, text)
                if names is not None:
                    return Found(family, root, names)
        return None

    def patterns(self, *given: str) -> list[str]:
        """Patterns for keys below the roots; of none given, for all of them.

        `lock:issue:*` means those below every root, in all shards; `lock`, a word without wildcards, the key of that
        name and all below it. A root may stand before it: then it is meant below that root only.
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
            yield from _with_all_below(text)
            return
        named = next((name for name in self.names if text == name or text.startswith((f"{name}:", f"{name}/"))), None)
        rest = text if named is None else text[len(named) + 1 :] or "*"
        for name in self.names if named is None else (named,):
            for stem in (f"{name}:", f"{{{name}:*}}:"):
                yield from _with_all_below(stem + rest, may_be_word=not has_wildcards(rest))


def _with_all_below(pattern: str, *, may_be_word: bool | None = None) -> Sequence[str]:
    is_word = not has_wildcards(pattern) if may_be_word is None else may_be_word
    return [pattern, f"{pattern}:*"] if is_word and not pattern.endswith(":") else [pattern]


def _roots(settings: Settings, component: str) -> Roots:
    section = getattr(settings, component, None)
    return Roots(getattr(settings.roots, COMPONENTS[component]), getattr(section, "shards", 1) if section else 1)


def shown(key: bytes | str) -> str:
    """The key as text for people, on one line: what cannot be shown is escaped."""
    text = key.decode(errors="backslashreplace") if isinstance(key, bytes) else key
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
