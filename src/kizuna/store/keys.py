"""Keys, declared as data: what they look like, what they hold, how they end.

    LOCK_HOLDER = Key("lock:{<lock>}:holder", "string", "expires", "token of the process that holds the lock")

    LOCK_HOLDER.build("poppo", lock="nightly")                  "poppo:lock:{nightly}:holder"
    LOCK_HOLDER.parse("poppo", b"poppo:lock:{nightly}:holder")  {"lock": "nightly"}, or None for any other key
    LOCK_HOLDER.glob("poppo")                                   "poppo:lock:{*}:holder"

`<name>` stands for one part of the key, `<name...>` for one or more parts with the separator in between;
braces are literal, and make a hash tag. What stands before the pattern is the root, which users choose.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from kizuna.errors import IllegalName, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

KeyType = Literal["string", "hash", "list", "set", "zset", "stream", "channel", "any"]
"""`channel` is no key but the name of a pub/sub channel: built, parsed and granted in the same way. `any` is for keys
whose type is up to others."""
Ends = Literal["expires", "removed", "never"]
"""expires: has a TTL. removed: a step of the program removes it. never: stays, and its size is bounded."""
JoinedBy = Literal[":", "/", ""]

LONGEST_NAME = 256
MOST_PARTS = 32
SLOTS = 16384

_BLANKS_AND_CONTROLS = r"\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# Nothing that is special in a SCAN or PSUBSCRIBE pattern is ever part of a key, so globs need no escapes.
_NOWHERE = _BLANKS_AND_CONTROLS + r"*?\[\]\\\ud800-\udfff"
# Names behind a bare prefix hold neither separator, so such a family never meets one that is joined by it.
_NOT_IN_NAMES = {joined_by: _NOWHERE + "{}" + (joined_by or ":/") for joined_by in (":", "/", "")}

_LEGAL_LITERAL = re.compile(f"[^{_NOWHERE}]*")
_LEGAL_ROOT = re.compile(f"[^{{}}{_NOWHERE}]*(?:{{[^{{}}{_NOWHERE}]+}}[^{{}}{_NOWHERE}]*)?")
_PART = re.compile(r"(?P<before>[^<>]*)(?:<(?P<name>[a-z][a-z0-9_]*)(?P<rest>\.\.\.)?>(?P<after>[^<>]*))?")


class Part(NamedTuple):
    """One part of a pattern: `{<lock>}` is Part("{", "lock", "}")."""

    before: str
    name: str = ""
    after: str = ""
    takes_rest: bool = False


class _Hole(NamedTuple):
    name: str
    takes_rest: bool
    fits: Callable[[str], object]
    text_after: str


@dataclass(frozen=True)
class Key:
    """A family of keys. No two families share a key: where their patterns do, one declares that it stands
    `apart_from` the other, and leaves those keys to it.

    `joined_by` stands between root and pattern and between the parts. With "" the root is a plain prefix,
    possibly empty, and ":" separates the parts. `before_root` is for names that others gave: text before the root.
    """

    pattern: str
    type: KeyType
    ends: Ends
    meaning: str
    joined_by: JoinedBy = field(default=":", kw_only=True)
    apart_from: tuple[Key, ...] = field(default=(), kw_only=True)
    before_root: str = field(default="", kw_only=True)

    parts: tuple[Part, ...] = field(init=False, repr=False, compare=False)
    _text_before: str = field(init=False, repr=False, compare=False)
    _holes: tuple[_Hole, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = _read_pattern(self.pattern, self.joined_by)
        text_before, holes = _texts_and_holes(parts, self.joined_by)
        # The one write to a frozen instance: what follows from the fields, worked out once.
        vars(self).update(parts=parts, _text_before=text_before, _holes=holes)

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        # Not before it is needed: compiling those of all families takes longer than a command that needs a few.
        return _regex(self.parts, self.joined_by)

    @property
    def separator(self) -> str:
        return self.joined_by or ":"

    @property
    def beginning(self) -> str:
        """What stands between the root and the first name: all keys of the family begin so, below any root."""
        return self.joined_by + self._text_before

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(hole.name for hole in self._holes)

    def build(self, root: str, /, **names: str) -> str:
        """The key of these names. IllegalName if one of them is no text, or could leave its place in the key; TypeError
        if one is missing or unknown."""
        key = self._stem(root) + self._text_before
        try:
            for hole, _, fits, text_after in self._holes:
                name = names[hole]
                if not fits(name):
                    raise self._refusal(hole, name)
                key += name + text_after
        except KeyError as missing:
            raise TypeError(f"{self.pattern} needs a name for {missing}") from None
        except TypeError:
            raise IllegalName(
                hole, _shortened(str(name)), f"it is no text, but of type {type(name).__name__}"
            ) from None
        if len(names) != len(self._holes):
            self._refuse_unknown(names)
        if self.apart_from and (owner := self._owner_apart(root, key)):
            raise IllegalName(self.pattern, key, f"it is the key of {owner.pattern}")
        return key

    def takes(self, **names: str) -> bool:
        """Whether `build` would: for names that outsiders chose."""
        try:
            self.build("any", **names)
        except IllegalName:
            return False
        return True

    def parse(self, root: str, key: str | bytes, /) -> dict[str, str] | None:
        """The names that `build` makes this key of (none at all, {}, if the pattern has no places), or None if this is
        not a key of the family."""
        if isinstance(key, bytes):
            try:
                key = key.decode()
            except UnicodeDecodeError:
                return None
        stem = self._stem(root)
        if not key.startswith(stem):
            return None
        found = self._regex.fullmatch(key, len(stem))
        if found is None or (self.apart_from and self._owner_apart(root, key)):
            return None
        return found.groupdict()

    def glob(self, root: str, /, **fixed: str) -> str:
        """A pattern for SCAN and PSUBSCRIBE that matches the whole family, or its keys with these names.

        It may match keys of other families as well, since `*` takes any text: `parse` tells them apart.
        """
        self._refuse_unknown(fixed)
        glob = self._stem(root) + self._text_before
        for hole, _, fits, text_after in self._holes:
            name = fixed.get(hole)
            if name is not None and not fits(name):
                raise self._refusal(hole, name)
            glob += ("*" if name is None else name) + text_after
        return glob

    def _stem(self, root: str) -> str:
        """What every key of the family begins with."""
        return self.before_root + _stem(root, self.joined_by)

    def _owner_apart(self, root: str, key: str) -> Key | None:
        return next((other for other in self.apart_from if other.parse(root, key) is not None), None)

    def _refuse_unknown(self, names: dict[str, str]) -> None:
        if unknown := sorted(names.keys() - set(self.names)):
            raise TypeError(f"{self.pattern} has no place for {', '.join(unknown)}")

    def _refusal(self, hole: str, name: str) -> IllegalName:
        _, takes_rest, fits, _ = self._holes[self.names.index(hole)]
        parts = name.split(self.separator) if takes_rest else [name]
        if not name:
            reason = "it is empty"
        elif not all(parts):
            reason = f"a part of it is empty, beside {self.separator!r}"
        elif len(parts) > MOST_PARTS:
            reason = f"it has more than {MOST_PARTS} parts"
        elif max(map(len, parts)) > LONGEST_NAME:
            reason = f"it is longer than {LONGEST_NAME} characters"
        else:
            culprit = next(character for part in parts for character in part if not fits(character))
            reason = f"{culprit!r} is not allowed in a name"
        return IllegalName(hole, _shortened(name), reason)


def _read_pattern(pattern: str, joined_by: JoinedBy) -> tuple[Part, ...]:
    if not joined_by and "/" in pattern:
        raise ValueError(f"{pattern} cannot stand behind a bare prefix: '/' is not allowed there")
    parts = tuple(_read_part(pattern, text) for text in pattern.split(joined_by or ":"))
    names = [part.name for part in parts if part.name]
    if len(set(names)) != len(names):
        raise ValueError(f"{pattern} has two places with one name")
    if any(part.takes_rest and part.name != names[-1] for part in parts):
        raise ValueError(f"{pattern}: only the last place can take the rest")
    return parts


def _read_part(pattern: str, text: str) -> Part:
    found = _PART.fullmatch(text)
    if not text or not found or not _LEGAL_LITERAL.fullmatch(text):
        raise ValueError(f"{text!r} cannot be a part of {pattern!r}: text, one <name>, or one <name> within text can")
    return Part(found["before"], found["name"] or "", found["after"] or "", bool(found["rest"]))


def _texts_and_holes(parts: tuple[Part, ...], joined_by: JoinedBy) -> tuple[str, tuple[_Hole, ...]]:
    """The pattern as text, hole, text, hole, text …: the first text, and each hole with the text after it."""
    texts = [""]
    for number, part in enumerate(parts):
        texts[-1] += ((joined_by or ":") if number else "") + part.before
        if part.name:
            texts.append(part.after)
    holes = (
        _Hole(part.name, part.takes_rest, re.compile(_hole_regex(part, joined_by)).fullmatch, text_after)
        for part, text_after in zip(filter(lambda part: part.name, parts), texts[1:], strict=True)
    )
    return texts[0], tuple(holes)


def _regex(parts: tuple[Part, ...], joined_by: JoinedBy) -> re.Pattern[str]:
    def of(part: Part) -> str:
        hole = f"(?P<{part.name}>{_hole_regex(part, joined_by)})" if part.name else ""
        return re.escape(part.before) + hole + re.escape(part.after)

    return re.compile((joined_by or ":").join(map(of, parts)))


def _hole_regex(part: Part, joined_by: JoinedBy) -> str:
    name = f"[^{_NOT_IN_NAMES[joined_by]}]{{1,{LONGEST_NAME}}}"
    more = f"(?:{joined_by or ':'}{name}){{0,{MOST_PARTS - 1}}}" if part.takes_rest else ""
    return name + more


@lru_cache(maxsize=4096)
def _stem(root: str, joined_by: JoinedBy) -> str:
    """What every key under this root begins with."""
    if reason := _why_not_root(root, joined_by):
        raise IllegalName("root", _shortened(root), reason)
    return root + joined_by


def _why_not_root(root: str, joined_by: JoinedBy) -> str | None:
    if joined_by and not root:
        return "it is empty"
    if joined_by and root.endswith(joined_by):
        return f"it ends with {joined_by!r}, which is put behind it anyway"
    if len(root) > LONGEST_NAME:
        return f"it is longer than {LONGEST_NAME} characters"
    if not _LEGAL_ROOT.fullmatch(root):
        return "only plain text is allowed, without blanks or any of *?[]\\, and one {tag} at most"
    return None


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:40]}…"


@dataclass(frozen=True)
class Roots:
    """The roots that a capability spreads its keys over: `poppo` alone, or `{poppo:0}` … `{poppo:n-1}`, each
    with all its keys in one slot of a cluster."""

    root: str
    shards: int = 1

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise SettingsError(f"{self.root or 'a root'} cannot have {self.shards} shards; 1 is the least")
        if self.shards > 1 and "{" in self.root:
            raise IllegalName("root", self.root, "it has a hash tag, and shards bring their own")

    @cached_property
    def all(self) -> tuple[str, ...]:
        if self.shards == 1:
            return (self.root,)
        return tuple(f"{{{self.root}:{number}}}" for number in range(self.shards))

    def of(self, partition: str) -> str:
        """The root for everything of this partition: the same in every process and language, since it is
        chosen by the CRC16 that the cluster itself uses."""
        if self.shards == 1:
            return self.root
        # A lone surrogate passes here: it is `build` that refuses it, with the place it was meant for.
        return self.all[crc_hqx(partition.encode(errors="surrogatepass"), 0) % self.shards]


def key_slot(key: str | bytes) -> int:
    """The slot of a cluster that holds this key: by the text in its first braces, if any, else by all."""
    raw = key.encode() if isinstance(key, str) else key
    start = raw.find(b"{")
    if start >= 0:
        end = raw.find(b"}", start)
        if end > start + 1:
            raw = raw[start + 1 : end]
    return crc_hqx(raw, 0) % SLOTS


CANARY = Key(
    "canary:{<place>}:<reader>",
    "string",
    "expires",
    "written to prove that notifications still arrive; place is a tag with a slot on the server in question",
)
RESTORING = Key(
    "restoring:{<place>}:<restore>", "any", "expires", "a value on its way back from a backup, not yet whole"
)
RESTORED = Key("restored:<restore>", "string", "expires", "how far the restore of a backup has come, in blocks")
