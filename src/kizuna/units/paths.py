"""Paths of units: `muf/[unit]/[status]/[id]`. Everything that a message is about stands in its path, so that the value
is nothing but the value.

    parse_path("MUF/Unit_A/REQ/42")          Path(unit="unit_a", status="req", id="42")
    build_path("Unit_A", "req", "42")        "muf/unit_a/req/42"

A path is in lower case, whoever writes it: names that differ in nothing else are the same name. Does no I/O.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

from kizuna.errors import IllegalName
from kizuna.store.keys import LONGEST_NAME, Key
from kizuna.units.keys import ERROR, KEEP, REQUEST, RESPONSE

DEFAULT_ROOT = "muf"
ADDRESS_END = "."
"""Stands in the id of a request between the name of who is to serve it and what makes the id unique."""
LONGEST_UNIT = LONGEST_NAME - 32
"""So that what makes an id unique has room behind it."""
SHORT_LIVED = "~"
"""Begins what makes an id unique, if the request lives for `SHORT_MS` at most: who serves it need not ask then how long
it does, to know whether it outlives the answer."""
SHORT_MS = 60_000
CLAIM = "claim."
"""Begins the ids of claims, below the `keep` of whoever claims."""
PRESENCE = "presence."
"""Begins the ids of what a unit tells about itself, below its `keep`: one for each process that is this unit."""

FAMILIES: dict[str, Key] = {"req": REQUEST, "res": RESPONSE, "err": ERROR, "keep": KEEP}
"""By status."""

_SPECIAL_IN_PATTERN = frozenset("*?[]\\")
_SHOWN = 2 * LONGEST_NAME


class Path(NamedTuple):
    unit: str
    status: str
    id: str


def lowered(text: str) -> str:
    """In lower case, each character by itself: what stands around it must not matter, as it does for a Greek sigma."""
    return text.lower() if text.isascii() else "".join(map(str.lower, text))


def parse_path(path: str | bytes, root: str = DEFAULT_ROOT) -> Path:
    """What the path is made of, in lower case. IllegalName, with the reason, if it is no path."""
    text = lowered(path.decode(errors="surrogateescape") if isinstance(path, bytes) else path)
    parts = Path(*_three_parts("path", text, root))
    _built(parts, root)
    return parts


def build_path(unit: str, status: str, id: str, root: str = DEFAULT_ROOT) -> str:  # noqa: A002 - what it is called
    """The path, in lower case. IllegalName if a part could not stand there."""
    return _built(Path(lowered(unit), lowered(status), lowered(id)), root)


def read_path(key: str | bytes, root: str) -> Path | None:
    """`parse_path` for keys that somebody else wrote: None for what is no path."""
    try:
        return parse_path(key, root)
    except IllegalName:
        return None


@lru_cache(maxsize=4096)
def unit_name(name: str) -> str:
    """The name of a unit that is called or serves, in lower case. A dot ends it in the id of a request."""
    name = lowered(name)
    REQUEST.build(DEFAULT_ROOT, unit=name, id="any")
    if ADDRESS_END in name:
        raise IllegalName("unit", name, "it has a dot, which ends the name of a unit in the id of a request")
    if len(name) > LONGEST_UNIT:
        reason = f"it is longer than {LONGEST_UNIT} characters, and has to stand in the id of a request"
        raise IllegalName("unit", _shortened(name), reason)
    return name


def checked_id(id: str) -> str:  # noqa: A002
    """The id in lower case, if it can stand in a path."""
    id_ = lowered(id)
    KEEP.build(DEFAULT_ROOT, unit="any", id=id_)
    return id_


def checked_pattern(pattern: str, root: str) -> str:
    """A pattern for paths, in lower case: a glob as in PSUBSCRIBE, with all four parts. IllegalName for what would
    never match a path."""
    text = lowered(pattern)
    parts = _three_parts("pattern", text, root)
    if not all(parts):
        raise IllegalName("pattern", _shortened(text), "a part of it is empty")
    for character in "".join(parts):
        if character not in _SPECIAL_IN_PATTERN and not KEEP.takes(unit="any", id=character):
            raise IllegalName("pattern", _shortened(text), f"{character!r} is in no path")
    if _SPECIAL_IN_PATTERN.isdisjoint(parts[1]):
        _family(parts[1])
    return text


def claim_id(caller: str, id: str) -> str:  # noqa: A002
    """The id of the claim on this request, below the `keep` of whoever serves it. No two requests share one."""
    name = f"{CLAIM}{_escaped(caller)}.{id}"
    # Two long names do not fit into one. What is too long to be read need not be readable.
    return name if len(name) <= LONGEST_NAME else CLAIM + hashlib.sha256(name.encode()).hexdigest()


def _escaped(caller: str) -> str:
    # Units of ours have no dot in their name; others may, and `a.b` with request `c` is not `a` with `b.c`.
    return caller.replace("%", "%25").replace(".", "%2e") if "." in caller or "%" in caller else caller


def _three_parts(what: str, text: str, root: str) -> list[str]:
    """Those behind the root."""
    stem = lowered(root) + "/"
    if not text.startswith(stem):
        raise IllegalName(what, _shortened(text), f"it does not begin with {stem!r}")
    parts = text[len(stem) :].split("/")
    if len(parts) != 3:
        reason = f"it has {len(parts)} parts below {stem!r}, and not the three of {stem}<unit>/<status>/<id>"
        raise IllegalName(what, _shortened(text), reason)
    return parts


def _built(path: Path, root: str) -> str:
    return _family(path.status).build(lowered(root), unit=path.unit, id=path.id)


def _family(status: str) -> Key:
    family = FAMILIES.get(status)
    if family is None:
        raise IllegalName("status", _shortened(status), f"it is none of {', '.join(FAMILIES)}")
    return family


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
