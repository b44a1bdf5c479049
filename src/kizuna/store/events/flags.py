"""The letters of notify-keyspace-events: which are needed to hear of what. This module does no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

Letters = frozenset[str]

SETTING = "notify-keyspace-events"
NONE: Letters = frozenset()

# K: announced on a channel by key (E would be by event, and tell everybody about everything). $: strings, which
# the canary of `listening` is one of.
_ALWAYS = "K$"
# What A stands for; `m` and `n` are not in it.
_ALL = frozenset("g$lshzxetd")
_ORDER = "AKE$gxhlszetdmn"

_KINDS_OF_LETTER = {
    "$": "set setrange incrby incrbyfloat append",
    "g": "del expire persist rename_from rename_to copy_to move_from move_to restore",
    "x": "expired",
    "h": "hset hdel hincrby hincrbyfloat hexpire hexpired hpersist",
    "l": "lpush rpush lpop rpop lset linsert lrem ltrim sortstore",
    "s": "sadd srem spop sinterstore sunionstore sdiffstore",
    "z": "zadd zrem zincr zpopmin zpopmax zremrangebyscore zremrangebyrank zremrangebylex zrangestore "
    "zinterstore zunionstore zdiffstore georadiusstore geosearchstore",
    "t": "xadd xdel xtrim xsetid xgroup-create xgroup-createconsumer xgroup-delconsumer xgroup-destroy xgroup-setid",
    "e": "evicted",
    "m": "keymiss",
    "n": "new",
}  # fmt: skip
_LETTER_OF_KIND = {kind: letter for letter, kinds in _KINDS_OF_LETTER.items() for kind in kinds.split()}


def letters_for(kinds: Iterable[str]) -> Letters:
    """What the server must have set to announce these. ValueError for a kind that no server announces."""
    return frozenset({*_ALWAYS, *map(_letter_for, kinds)})


def lacking(flags: str, needed: Letters) -> Letters:
    """What of the needed letters the server's flags do not cover."""
    has = set(flags)
    return needed - has - (_ALL if "A" in has else NONE)


def with_letters(flags: str, needed: Letters) -> str:
    """The flags as they are, and what is needed besides: others rely on theirs."""
    return "".join(sorted({*flags, *lacking(flags, needed)}, key=_ORDER.find))


def _letter_for(kind: str) -> str:
    letter = _LETTER_OF_KIND.get(kind)
    if letter is None:
        nearest = get_close_matches(kind, _LETTER_OF_KIND, 1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; known are {', '.join(_LETTER_OF_KIND)}"
        raise ValueError(f"no server announces {kind!r}{hint}")
    return letter
