"""The namespace as a JSON file, for teams that keep theirs in one:

    {"redis": {"namespace": "poppo",
               "keyPatterns": {"issue": "poppo:issue:{type}:{number}", …},
               "channels": {"mirinRequests": "poppo:channel:mirin:requests", …},
               "ttl": {"heartbeat": 1800, "tempData": 3600, "stats": 604800}}}

It is checked against the families that are declared, so that a name which nobody writes is found here and not in
production. The names are those without shards.
"""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kizuna.coordination import keys
from kizuna.coordination.namespace import Name, check_priority
from kizuna.errors import IllegalName, SettingsError
from kizuna.settings import LONGEST_KEPT_S
from kizuna.store.keys import Key, Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SECTIONS = ("namespace", "keyPatterns", "channels", "ttl")
TTLS = {
    "heartbeat": "heartbeat_s",
    "tempData": "temp_s",
    "stats": "stats_s",
    "session": "session_s",
    "result": "result_s",
    "deadTask": "dead_task_s",
    "endedIssue": "ended_issue_s",
}
"""The names in the file, and those in the settings, section `kept`."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)\}")
_FAMILIES = tuple(value for value in vars(keys).values() if isinstance(value, Key))


class Pattern(NamedTuple):
    """`poppo:issue:{type}:{number}`, the families whose keys it makes, and its placeholders in their order."""

    text: str
    key: Key
    families: tuple[Key, ...]
    placeholders: tuple[str, ...]

    def fill(self, root: str, names: Mapping[str, Name]) -> str:
        """IllegalName if a name could leave its place, or if nobody has such a key; TypeError if one is missing."""
        if wrong := sorted(names.keys() ^ set(self.placeholders)):
            has = ", ".join(self.placeholders) or "none"
            raise TypeError(f"{self.text} has the placeholders {has}; {', '.join(wrong)} is missing or too many")
        try:
            key = self.key.build(root, **{_inner(name): str(value) for name, value in names.items()})
        except IllegalName as error:
            raise IllegalName(error.place.removeprefix("p_"), error.name, error.reason) from None
        return self._declared(root, key)

    def _declared(self, root: str, key: str) -> str:
        for family in self.families:
            names = family.parse(root, key)
            if names is not None:
                if "priority" in names:
                    check_priority(names["priority"])
                return key
        known = " or ".join(family.pattern for family in self.families)
        raise IllegalName(self.text, key, f"only {known} is declared")


class NamespaceFile(NamedTuple):
    """A file that was found to be right."""

    root: str
    patterns: Mapping[str, Pattern]
    channels: Mapping[str, Pattern]
    ttl: Mapping[str, int]
    """In seconds, by the names in the file."""

    def key(self, pattern: str, **names: Name) -> str:
        """`key("issue", type="status", number=123)` is poppo:issue:status:123."""
        return _named(self.patterns, pattern, "keyPatterns").fill(self.root, names)

    def channel(self, channel: str, **names: Name) -> str:
        """`channel("mirinRequests")` is poppo:channel:mirin:requests."""
        return _named(self.channels, channel, "channels").fill(self.root, names)

    def overrides(self) -> dict[str, object]:
        """For `load_settings`: the root, and how long things are kept."""
        kept = {f"kept.{TTLS[name]}": seconds for name, seconds in self.ttl.items()}
        return {"roots.coordination": self.root, **kept}


def load_namespace_file(path: str | Path) -> NamespaceFile:
    """Read and check it. Raises SettingsError with all problems at once."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} cannot be read: it is not UTF-8") from error
    return read_namespace(text, str(path))


def read_namespace(text: str, origin: str = "the namespace") -> NamespaceFile:
    """The same for text; `origin` is what problems begin with."""
    twice: list[str] = []
    try:
        content = json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, twice))
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{origin} is not JSON: {error}") from error
    reader = _Reader()
    found = reader.read(content)
    problems = [*(f"{name!r} stands there twice" for name in twice), *reader.problems]
    if problems or found is None:
        raise SettingsError(*(f"{origin}: {problem}" for problem in problems))
    return found


class _Reader:
    """Goes through the whole file and notes every problem."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def read(self, content: object) -> NamespaceFile | None:
        redis = content.get("redis") if isinstance(content, dict) else None
        if not isinstance(content, dict) or not isinstance(redis, dict):
            self.problems.append('it should be {"redis": {"namespace": …, …}}')
            return None
        self._refuse_unknown(content, ("redis",), "section")
        self._refuse_unknown(redis, SECTIONS, "section in redis")
        root = self._root(redis.get("namespace"))
        if root is None:
            return None
        return NamespaceFile(
            root,
            self._patterns(redis, "keyPatterns", root, [family for family in _FAMILIES if family.type != "channel"]),
            self._patterns(redis, "channels", root, [keys.CHANNEL]),
            self._ttls(redis),
        )

    def _root(self, root: object) -> str | None:
        if root is None:
            self.problems.append("namespace is missing: what all keys begin with")
            return None
        if not isinstance(root, str) or "{" in root:
            self.problems.append(f"namespace = {root!r}: it should be text, without braces")
            return None
        try:
            keys.ISSUES_PROCESSING.build(root)
        except IllegalName as error:
            self.problems.append(f"namespace: {error}")
            return None
        return root

    def _patterns(
        self, redis: Mapping[str, Any], section: str, root: str, families: Iterable[Key]
    ) -> dict[str, Pattern]:
        patterns = {}
        for name, text in self._table(redis.get(section, {}), section).items():
            try:
                patterns[name] = _pattern(text, root, families)
                if not patterns[name].placeholders:
                    patterns[name].fill(root, {})
            except (ValueError, IllegalName) as error:
                self.problems.append(f"{section}.{name} = {text!r}: {error}")
        return patterns

    def _ttls(self, redis: Mapping[str, Any]) -> dict[str, int]:
        ttls = self._table(redis.get("ttl", {}), "ttl")
        self._refuse_unknown(ttls, TTLS, "time in ttl")
        for name, seconds in ttls.items():
            if type(seconds) is not int or not 0 < seconds <= LONGEST_KEPT_S:
                self.problems.append(f"ttl.{name} = {seconds!r}: expected seconds, a whole number from 1 to ten years")
        return ttls

    def _table(self, value: object, name: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self.problems.append(f"{name} should be a table, not {value!r}")
        return {}

    def _refuse_unknown(self, given: Iterable[str], known: Iterable[str], what: str) -> None:
        for name in given:
            if name not in known:
                self.problems.append(f"{name!r} is not a {what}; {_nearest(name, known)}")


def _pattern(text: object, root: str, families: Iterable[Key]) -> Pattern:
    """ValueError says what is wrong with it."""
    if not isinstance(text, str):
        raise ValueError("it should be text")  # noqa: TRY004 - one kind of error for all that can be wrong
    if not text.startswith(f"{root}:"):
        raise ValueError(f"it should begin with {root}:")
    below = text.removeprefix(f"{root}:")
    placeholders = tuple(_PLACEHOLDER.findall(below))
    if any(mark in _PLACEHOLDER.sub("", below) for mark in "{}<>"):
        raise ValueError("a placeholder is written {name}, with letters, digits and _")
    if len({*map(_inner, placeholders)}) < len(placeholders):
        raise ValueError("each placeholder needs a name of its own")
    key = _key(below)
    fitting = tuple(family for family in families if _fits(key.parts, family.parts))
    if not key.parts or key.parts[0].name or not fitting:
        raise ValueError(f"no such key is declared; {_nearest_family(below, families)}")
    takes_rest = all(family.parts[-1].takes_rest for family in fitting) and key.parts[-1].name
    return Pattern(text, _key(below, takes_rest=bool(takes_rest)), fitting, placeholders)


def _key(below: str, *, takes_rest: bool = False) -> Key:
    pattern = _PLACEHOLDER.sub(lambda found: f"<{_inner(found[1])}>", below)
    if takes_rest:
        head, _, tail = pattern.rpartition(">")
        pattern = f"{head}...>{tail}"
    return Key(pattern, "string", "removed", "a pattern of a namespace file")


def _inner(placeholder: str) -> str:
    """Names in declared patterns have no capitals; two that differ by nothing else are one."""
    return f"p_{placeholder.lower()}"


def _fits(pattern: tuple[Part, ...], family: tuple[Part, ...]) -> bool:
    """Whether the pattern, filled in some way, is a key of the family."""
    if family[-1].takes_rest:
        family += (family[-1],) * (len(pattern) - len(family))
    return len(pattern) == len(family) and all(map(_part_fits, pattern, family))


def _part_fits(part: Part, declared: Part) -> bool:
    if declared.name:
        return True
    if not part.name:
        return part.before == declared.before
    text = declared.before
    return text.startswith(part.before) and text.endswith(part.after) and len(text) > len(part.before + part.after)


def _once(pairs: list[tuple[str, Any]], twice: list[str]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice.extend(sorted({name for name in names if names.count(name) > 1}))
    return table


def _named(patterns: Mapping[str, Pattern], name: str, section: str) -> Pattern:
    if name not in patterns:
        raise IllegalName("name", name, f"{section} has none such; {_nearest(name, patterns)}")
    return patterns[name]


def _nearest(name: str, known: Iterable[str]) -> str:
    listed = list(known)
    found = get_close_matches(name, listed, 1)
    return f"did you mean {found[0]!r}?" if found else f"there are {', '.join(map(repr, listed)) or 'none'}"


def _nearest_family(below: str, families: Iterable[Key]) -> str:
    component = below.partition(":")[0]
    listed = [family.pattern for family in families]
    same = [pattern for pattern in listed if pattern.partition(":")[0] == component]
    if same:
        return f"there is {' or '.join(same)}"
    return _nearest(component, dict.fromkeys(pattern.partition(":")[0] for pattern in listed))
