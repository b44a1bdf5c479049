"""What a user of the server has to be allowed for the work of a component, and nothing else. Does no I/O.

Keys and channels are those of its families; commands are those on data, which reach no further than these keys, and
the few that kizuna needs besides. What looks at or changes the server as a whole stays forbidden.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kizuna.catalogue import COMPONENTS, Family, all_families
from kizuna.memory.keys import ALL_EVENTS
from kizuna.store.scanning import glob_of
from kizuna.store.scanning.globs import covers

if TYPE_CHECKING:
    from kizuna.survey.known import Known

ON_DATA = ("-@all", "+@read", "+@write", "+@pubsub", "-@dangerous", "-randomkey", "-dbsize", "-move")
"""SCAN stays: it tells names, also of others' keys, and no values."""
TO_CONNECT = ("+hello", "+auth", "+ping", "+select", "+client|id", "+client|setname", "+asking", "+cluster|slots")
TO_WORK = ("+eval", "+evalsha", "+time", "+info", "+config|get", "+client|list")
"""INFO tells whether the server is safe for data, CONFIG GET whether it announces changes, CLIENT LIST whether a
silent process is still connected."""
TO_OPERATE = ("+dbsize", "+memory|usage", "+latency|latest", "+slowlog|get", "+cluster|info")

# A user may subscribe to a pattern only if that very pattern was granted: these are watched as a whole. Units besides
# hear patterns with their own name in them, which only rules for a unit can name; with those for the component they
# hear what all listen to, and look for the rest every now and then.
_WATCHED = frozenset({"CANARY", "CONFIG", "FLAG", "REQUEST", "RESPONSE", "ERROR", "KEEP"})
# The same of those with bare prefixes, watched in each shard by itself.
_WATCHED_BEHIND_PREFIXES = frozenset({"ALL_TICKETS", "ASSIGNMENT"})


def rules_for(known: Known, components: Iterable[str], *, database: int = 0) -> list[str]:
    """The rules for processes that use these components. Each needs the keys of the store besides."""
    wanted = {"store", *components}
    families = [family for family in all_families() if family.component in wanted]
    keys = [_glob(known, family) for family in families if family.key.type != "channel"]
    channels = [glob for family in families if family.key.type == "channel" for glob in _channels(known, family)]
    channels += _listened_to(known, wanted)
    return [
        *ON_DATA,
        *TO_CONNECT,
        *TO_WORK,
        *(f"~{glob}" for glob in _reduced(keys)),
        *(f"&{glob}" for glob in _reduced(channels)),
        *_heard(_watched(known, families), database),
    ]


def rules_for_operators(known: Known, *, database: int = 0) -> list[str]:
    """The rules for people who list, back up, restore and clean everything below the roots, and watch it change."""
    below = known.everything()
    channels = [glob for family in all_families() if family.key.type == "channel" for glob in _channels(known, family)]
    heard = _heard([*below, *_watched(known, all_families())], database)
    return [
        *ON_DATA,
        *TO_CONNECT,
        *TO_WORK,
        *TO_OPERATE,
        *(f"~{glob}" for glob in below),
        *(f"&{glob}" for glob in _reduced([*below, *channels, *_listened_to(known, {"memory"})])),
        *heard,
    ]


def set_user(user: str, rules: Sequence[str], *, password: str | None = None, for_file: bool = False) -> str:
    """The command that makes the user, or the line for an ACL file. Without a password nobody can sign in as it."""
    secret = [] if password is None else ["#" + hashlib.sha256(password.encode()).hexdigest()]
    start = ["user", user] if for_file else ["ACL", "SETUSER", user, "reset"]
    return " ".join([*start, "on", *secret, *rules])


def components() -> tuple[str, ...]:
    return tuple(COMPONENTS)


def _glob(known: Known, family: Family) -> str:
    bare = known.bare.get(family.component)
    return bare.glob(family) if bare else glob_of(family.key, known.roots[family.component])


def _watched(known: Known, families: Sequence[Family]) -> Iterator[str]:
    for family in families:
        if family.name in _WATCHED:
            yield _glob(known, family)
        elif family.name in _WATCHED_BEHIND_PREFIXES:
            yield from map(family.key.glob, known.roots[family.component].all)
    if any(family.component == "units" for family in families):
        yield f"{known.roots['units'].root}/*/*/*"


def _heard(globs: Iterable[str], database: int) -> list[str]:
    """So that changes of keys that fit these may be heard of: each as it stands, whether another covers it or not."""
    return [f"&__keyspace@{database}__:{glob}" for glob in dict.fromkeys(globs)]


def _channels(known: Known, family: Family) -> tuple[str, str]:
    """A channel has no slot: some have the plain root also where keys are in shards."""
    return family.key.glob(known.roots[family.component].root), _glob(known, family)


def _listened_to(known: Known, components: Collection[str]) -> list[str]:
    """Patterns of channels that are subscribed to as they stand, and so have to be granted as they stand."""
    return [f"{known.roots['memory'].root}{ALL_EVENTS}"] if "memory" in components else []


def _reduced(globs: Iterable[str]) -> Iterator[str]:
    """Without those that another one covers."""
    distinct = list(dict.fromkeys(globs))
    for glob in distinct:
        if not any(other != glob and covers(other, glob) for other in distinct):
            yield glob
