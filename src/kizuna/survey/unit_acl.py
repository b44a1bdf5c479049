"""What the user of one unit has to be allowed for its work among the others, and nothing else. Does no I/O.

    its own space         all of it; or, of its requests, only those to the units that it calls
    requests to it        read
    replies to these      written, and not read
    claims on its own     read: so it can tell a request that was taken from one that nobody took
    state of others       read, of the units that are named

The same holds for channels: an answer is also published, on a channel that is called like its key. So a unit can
neither ask or answer in the name of another one, nor read what others ask each other and are told. It cannot read the
server's settings, among which there are passwords.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kizuna.store.keys import CANARY
from kizuna.units.keys import ERROR, KEEP, REQUEST, RESPONSE
from kizuna.units.paths import ADDRESS_END, claim_id, lowered, unit_name

if TYPE_CHECKING:
    from kizuna.survey.known import Known

ANSWERS = (RESPONSE, ERROR)

TO_CONNECT = ("+hello", "+auth", "+ping", "+select", "+asking", "+cluster|slots", "+info")
"""INFO tells whether the server is safe for data."""
ON_VALUES = ("+get", "+mget", "+set", "+exists", "+type", "+pttl", "+pexpire", "+eval", "+evalsha", "+scan")
"""SCAN tells names, also of others' keys, and no values."""
TO_HEAR = ("+subscribe", "+psubscribe", "+unsubscribe", "+punsubscribe")
TO_TELL = ("+publish",)

_READ, _WRITE, _BOTH = "%R~", "%W~", "~"


def rules_for_unit(
    known: Known,
    unit: str,
    *,
    calls: Iterable[str] | None = None,
    serves: bool = True,
    reads: Iterable[str] = (),
    database: int = 0,
) -> list[str]:
    """The rules for processes that are this unit. It may call those that `calls` names, or, if that is None, all; and
    read the state of those that `reads` names. For Redis 7 and Valkey: before, a key could not be granted for reading
    or for writing alone. IllegalName for what is no name of a unit."""
    name, root = unit_name(unit), known.roots["units"].root
    others, read = None if calls is None else sorted(map(unit_name, calls)), sorted(map(lowered, reads))
    return [
        "-@all",
        *TO_CONNECT,
        *ON_VALUES,
        *TO_HEAR,
        *(TO_TELL if serves else ()),
        *_own(root, name, others),
        *(_served(root, name) if serves else ()),
        *(f"{_READ}{KEEP.glob(root, unit=other)}" for other in read),
        f"{_WRITE}{_canaries(known)}",
        *(f"&{family.glob(root, unit=name)}" for family in ANSWERS),
        *(f"&{_addressed(family.glob(root), name)}" for family in ANSWERS if serves),
        *(f"&__keyspace@{database}__:{pattern}" for pattern in _heard(known, name, read, serves=serves)),
    ]


def _own(root: str, name: str, calls: list[str] | None) -> Iterator[str]:
    if calls is None:
        yield f"{_BOTH}{root}/{name}/*"
        yield f"{_READ}{_claims(root, '*', name)}"
        return
    for other in calls:
        yield f"{_BOTH}{_addressed(REQUEST.glob(root, unit=name), other)}"
        yield f"{_READ}{_claims(root, other, name)}"
    for family in (*ANSWERS, KEEP):
        yield f"{_BOTH}{family.glob(root, unit=name)}"


def _served(root: str, name: str) -> Iterator[str]:
    yield f"{_READ}{_addressed(REQUEST.glob(root), name)}"
    for family in ANSWERS:
        yield f"{_WRITE}{_addressed(family.glob(root), name)}"


def _heard(known: Known, name: str, reads: list[str], *, serves: bool) -> Iterator[str]:
    """A pattern may be subscribed to only if that very pattern was granted. With any other, a unit looks for changes
    instead of hearing of them."""
    root = known.roots["units"].root
    for status in ("*", "req", "res", "err", "keep"):
        yield f"{root}/{name}/{status}/*"
    if serves:
        yield _addressed(REQUEST.glob(root), name)
    for other in reads:
        yield KEEP.glob(root, unit=other)
    yield _canaries(known)


def _addressed(glob: str, to: str) -> str:
    """Of the keys that fit the glob, those whose id begins with the name of a unit."""
    return f"{glob.removesuffix('*')}{to}{ADDRESS_END}*"


def _claims(root: str, server: str, caller: str) -> str:
    return f"{root}/{server}/keep/{claim_id(caller, '')}*"


def _canaries(known: Known) -> str:
    return CANARY.glob(known.roots["store"].root)
