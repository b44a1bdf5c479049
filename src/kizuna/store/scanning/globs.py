"""Patterns for keys, as SCAN MATCH and ACL rules understand them. Does no I/O.

*       any text          ?       any one byte
[a-f]   one of these      [^a]    any other
\\x      x itself
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

_SPECIAL = re.compile(rb"[*?\[\\]")
_PARTS = re.compile(rb"\\(?P<quoted>.)|\[(?P<class>\^?(?:\\.|[^\]\\])*)(?:\]|\Z)|(?P<other>.)", re.DOTALL)
_RANGES = re.compile(rb"\\(.)|(.)-(.)|(.)", re.DOTALL)
_EVERYTHING = b"(?!)"


class Wanted(NamedTuple):
    """The keys that one of the patterns matches, and also one of those in `within`."""

    patterns: Sequence[str]
    within: Sequence[str] = ("*",)

    def matcher(self) -> Callable[[bytes], object]:
        matches, is_within = matcher(self.patterns), matcher(self.within)
        return lambda key: matches(key) and is_within(key)


def matcher(patterns: Iterable[str | bytes]) -> Callable[[bytes], object]:
    """Tells of a key whether one of the patterns matches it, exactly as the server would."""
    any_of = b"|".join(b"(?:%s)" % _regex(_raw(pattern)) for pattern in patterns)
    return re.compile(any_of or _EVERYTHING, re.DOTALL).fullmatch


def covering(patterns: Sequence[str | bytes]) -> bytes:
    """One pattern that matches all that these match, and perhaps more."""
    distinct = list(dict.fromkeys(map(_raw, patterns)))
    if len(distinct) == 1:
        return distinct[0]
    return _common_beginning([_SPECIAL.split(pattern)[0] for pattern in distinct]) + b"*"


def covers(general: str, special: str) -> bool:
    """Whether everything that `special` matches is matched by `general` as well; sometimes no where it is yes."""
    return matcher([general])(special.replace("*", "x*x").encode()) is not None


def has_wildcards(text: str) -> bool:
    return _SPECIAL.search(text.encode(errors="surrogateescape")) is not None


def _common_beginning(texts: Sequence[bytes]) -> bytes:
    # In order, the first and the last differ the most.
    first, last = min(texts, default=b""), max(texts, default=b"")
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:same]


def _raw(pattern: str | bytes) -> bytes:
    return pattern if isinstance(pattern, bytes) else pattern.encode(errors="surrogateescape")


def _regex(pattern: bytes) -> bytes:
    return b"".join(map(_part, _PARTS.finditer(pattern)))


def _part(found: re.Match[bytes]) -> bytes:
    if found["quoted"] is not None:
        return re.escape(found["quoted"])
    if found["class"] is not None:
        return _class(found["class"])
    return {b"*": b".*", b"?": b"."}.get(found["other"]) or re.escape(found["other"])


def _class(text: bytes) -> bytes:
    negated = text.startswith(b"^")
    members = b"".join(map(_member, _RANGES.finditer(text[negated:])))
    if not members:  # of nothing: no byte is in it, and every byte is outside
        return b"." if negated else _EVERYTHING
    return b"[%s%s]" % (b"^" if negated else b"", members)


def _member(found: re.Match[bytes]) -> bytes:
    quoted, first, last, single = found.groups()
    if first is None:
        return re.escape(quoted if single is None else single)
    return b"%s-%s" % tuple(re.escape(end) for end in sorted((first, last)))
