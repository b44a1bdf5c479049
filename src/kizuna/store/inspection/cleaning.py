"""Removes keys by pattern, in steps that nobody else notices: the server frees their memory beside its other work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kizuna.store.inspection.looking import together
from kizuna.store.scanning import Scan, Wanted
from kizuna.store.scanning.pacing import ROWS

if TYPE_CHECKING:
    from kizuna.store.client import Store


async def remove(
    store: Store, wanted: Wanted | Sequence[str], *, progress: Callable[[int, int], object] = lambda done, total: None
) -> int:
    """Remove every key that is wanted, and say how many there were. Harmless when repeated: what an
    interruption left is removed the next time."""
    scan, removed = Scan(store, wanted), 0
    await scan.begin()
    async for keys in scan:
        for group in together(store, keys, ROWS):
            removed += await scan.pace.keep(store.call("UNLINK", *group))
        progress(scan.passed, scan.total)
    return removed
