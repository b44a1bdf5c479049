"""What keys are: type, remaining time, memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kizuna.store.scanning.pacing import ROWS
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.scanning import Scan

_look_at_keys = Script.load(__package__, "look_at_keys")

NEVER = -1
_NOT_MEASURED = -1


class Facts(NamedTuple):
    """A key as it was found."""

    key: bytes
    type: str
    ttl_ms: int | None
    """None if it does not end."""
    bytes: int | None
    """What it takes of the server's memory, by a sample of its items; None if that was not asked for."""


async def look_at(
    store: Store, keys: Sequence[bytes], scan: Scan | None = None, *, measure: bool = True
) -> list[Facts]:
    """Facts of the keys that are still there, in no particular order. Paced like the scan, if one is given."""
    facts: list[Facts] = []
    for group in together(store, keys, ROWS):
        rows = [{"key": key} for key in group]
        answer = _look_at_keys.rows(store, rows, measure=int(measure))
        replies = await (scan.pace.keep(answer) if scan else answer)
        facts += _facts(group, replies)
    return facts


async def look_at_all(store: Store, scan: Scan, *, measure: bool = True) -> AsyncIterator[list[Facts]]:
    """Facts of all keys that the scan finds, as it finds them."""
    async for keys in scan:
        yield await look_at(store, keys, scan, measure=measure)


def together(store: Store, keys: Iterable[bytes], most: int) -> Iterator[list[bytes]]:
    """The keys in groups that may stand in one command, of no more than so many."""
    groups: dict[int, list[bytes]] = defaultdict(list)
    for key in keys:
        groups[store.topology.group(key)].append(key)
    for group in groups.values():
        for first in range(0, len(group), most):
            yield group[first : first + most]


def _facts(keys: Sequence[bytes], replies: Iterable[Any]) -> Iterator[Facts]:
    for key, (kind, ttl_ms, size) in zip(keys, replies, strict=True):
        if kind != b"none":
            ends = None if ttl_ms == NEVER else ttl_ms
            yield Facts(key, kind.decode(), ends, None if size == _NOT_MEASURED else size)
