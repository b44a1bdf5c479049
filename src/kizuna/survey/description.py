"""All that is known about a key, or about a family of keys."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from kizuna.catalogue import Family, all_families
from kizuna.store.inspection.looking import look_at
from kizuna.survey.known import shown

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.inspection.looking import Facts
    from kizuna.survey.known import Found, Known

_ENDS = {
    "expires": "it has a time to live",
    "removed": "the step that ends what it stands for removes it",
    "never": "it stays; its number and size are bounded",
}
_LENGTH = {
    "string": ("STRLEN", "bytes"),
    "list": ("LLEN", "items"),
    "set": ("SCARD", "members"),
    "hash": ("HLEN", "fields"),
    "zset": ("ZCARD", "members"),
    "stream": ("XLEN", "entries"),
}


def family_named(text: str, known: Known) -> Family | None:
    """By its name, `LOCK`, or by its pattern, `lock:<lock...>`, with or without the root."""
    for family in all_families():
        patterns = (family.key.pattern, family.pattern_below(known.roots[family.component].root))
        if text.upper() == family.name or text in patterns:
            return family
    return None


def facts_of_family(family: Family, known: Known) -> dict[str, Any]:
    return {
        "family": family.name,
        "component": family.component,
        "pattern": family.pattern_below(known.roots[family.component].root),
        "type": family.key.type,
        "ends": family.key.ends,
        "meaning": family.key.meaning,
    }


def how_it_ends(family: Family) -> str:
    return _ENDS[family.key.ends]


async def describe_key(store: Store, known: Known, text: str) -> dict[str, Any]:
    """The key of this name, or the one of this name below a root. `family` is missing if nobody declared it, `type`
    if there is no such key now."""
    facts = await _look(store, known, text)
    key = facts.key if facts else text.encode(errors="surrogateescape")
    found = known.find(key)
    if found is None and (found := _below_a_root(known, text)) and "{" not in found.root:
        key = f"{found.root}{found.family.key.joined_by}{text}".encode(errors="surrogateescape")
    described: dict[str, Any] = {"key": shown(key)}
    if found is not None:
        described |= facts_of_family(found.family, known) | {"root": found.root, "names": found.names}
        described.pop("type")
        described["declared"] = found.family.key.type
    else:
        described["nearest"] = _nearest(known, shown(key))
    return described | (await _live(store, facts) if facts else {})


async def _look(store: Store, known: Known, text: str) -> Facts | None:
    raw = text.encode(errors="surrogateescape")
    if known.is_below(raw):
        return next(iter(await look_at(store, [raw])), None)
    below = [key.encode(errors="surrogateescape") for key in known.keys_meant(text)]
    facts = await look_at(store, below)
    if facts or _below_a_root(known, text):
        return min(facts, key=lambda one: below.index(one.key), default=None)
    # Only what has no place below a root is looked for beside them, where an operator may not look.
    return next(iter(await look_at(store, [raw])), None)


def _below_a_root(known: Known, text: str) -> Found | None:
    found = (known.find(key.encode(errors="surrogateescape")) for key in known.keys_meant(text))
    return next(filter(None, found), None)


async def _live(store: Store, facts: Facts) -> dict[str, Any]:
    live: dict[str, Any] = {"type": facts.type, "ttl_ms": facts.ttl_ms, "bytes": facts.bytes}
    if facts.type in _LENGTH:
        command, unit = _LENGTH[facts.type]
        live |= {"length": await store.call(command, facts.key), "unit": unit}
    encoding = await store.call("OBJECT", "ENCODING", facts.key)
    return live | {"encoding": encoding.decode() if encoding else None}


def _nearest(known: Known, key: str) -> list[str]:
    patterns = {facts_of_family(family, known)["pattern"]: None for family in all_families()}
    return get_close_matches(key, patterns, n=2, cutoff=0.6)
