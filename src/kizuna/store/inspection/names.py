"""The first names of many, in order, without keeping all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kizuna.store.scanning import Scan, Wanted

if TYPE_CHECKING:
    from kizuna.store.client import Store


class Names(NamedTuple):
    first: list[bytes]
    """In order, each once."""
    total: int
    """How many there are; a key that the server names twice counts twice."""
    moved_slots: int


async def first_names(store: Store, wanted: Wanted | Sequence[str], limit: int, *, after: bytes = b"") -> Names:
    """The `limit` first of the keys that are wanted and stand behind `after`. Takes the memory of two pages."""
    scan, kept, total = Scan(store, wanted), set[bytes](), 0
    async for keys in scan:
        behind = [key for key in keys if key > after]
        total += len(behind)
        kept.update(behind)
        if len(kept) > 2 * limit:
            kept = set(sorted(kept)[:limit])
    return Names(sorted(kept)[:limit], total, scan.moved_slots)
