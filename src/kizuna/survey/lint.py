"""Which keys are not as they are declared. Does no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from kizuna.units.paths import lowered

if TYPE_CHECKING:
    from kizuna.store.inspection.looking import Facts
    from kizuna.survey.known import Found, Known

Problem = Literal["undeclared", "wrong type", "never ends", "ends", "beside a root"]


class Finding(NamedTuple):
    key: bytes
    problem: Problem
    what: str
    """A sentence about it."""


def problem_with(known: Known, facts: Facts, found: Found | None) -> Finding | None:
    """What is wrong with a key that was found to belong there; None if all is as declared."""
    key = facts.key
    if found is None:
        return _undeclared(known, key)
    declared, name = found.family.key, found.family.name
    if declared.type not in (facts.type, "any"):
        return Finding(key, "wrong type", f"it is a {facts.type}, and {name} is declared as {declared.type}")
    if declared.ends == "expires" and facts.ttl_ms is None:
        return Finding(key, "never ends", f"it has no time to live, and {name} is declared to expire")
    if declared.ends == "never" and facts.ttl_ms is not None:
        return Finding(key, "ends", f"it ends in {facts.ttl_ms / 1000:.0f} s, and {name} is declared to stay")
    return None


def _undeclared(known: Known, key: bytes) -> Finding:
    if not known.is_below(key):
        return Finding(key, "beside a root", "it begins like a root, and is not below it")
    text = key.decode(errors="backslashreplace")
    root = known.joined_root_of(text)
    if root is None:
        return Finding(key, "undeclared", "no family has such a key")
    shards = known.shards_of(root)
    if shards > 1 and text.startswith(f"{root}:"):
        return Finding(key, "undeclared", f"it is not in one of the {shards} shards of {root}")
    if text.startswith("{") and text[: text.find("}") + 1] not in known.roots_in_use:
        return Finding(key, "undeclared", f"it is in a shard that is not in use: {root} has {shards}")
    meant = known.find(lowered(text).encode())
    if meant is not None and meant.family.component == "units":
        return Finding(key, "undeclared", "it is not in lower case, as the paths of units are")
    return Finding(key, "undeclared", "no family has such a key")
