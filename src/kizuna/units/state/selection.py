"""Which part of a unit's state is meant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from kizuna.store.scanning import Scan
from kizuna.store.scanning.globs import has_wildcards
from kizuna.units.keys import KEEP
from kizuna.units.paths import CLAIM, PRESENCE, checked_pattern, lowered

if TYPE_CHECKING:
    from kizuna.store.client import Store


class Selection:
    """The ids that fit a pattern; without what units note for themselves, their claims and their presence, unless
    `internals` are wanted. `root` and `unit` are in lower case; the pattern need not be."""

    def __init__(self, root: str, unit: str, pattern: str, *, internals: bool = False) -> None:
        stem = KEEP.build(root, unit=unit, id="any").removesuffix("any")
        self.glob = checked_pattern(stem + pattern, root)
        """Of the keys; it may match others besides."""
        self._root = root
        self._noted = () if internals else tuple((stem + begins).encode() for begins in (CLAIM, PRESENCE))

    def may_have(self, key: bytes) -> bool:
        """Quick, for those who hear of very many: a unit notes something at every request."""
        return not key.startswith(self._noted)

    def id_of(self, key: bytes) -> str | None:
        """None if the key is none of these: deeper, no text, noted; or not in lower case, so that nobody can get it."""
        names = KEEP.parse(self._root, key) if self.may_have(key) else None
        return names["id"] if names and names["id"] == lowered(names["id"]) else None

    async def keys(self, store: Store) -> AsyncIterator[bytes]:
        """Those that there are now. One that comes or goes meanwhile may be missing, and one may come twice."""
        if not has_wildcards(self.glob):
            yield self.glob.encode()
            return
        async for keys in Scan(store, [self.glob], type="string"):
            for key in keys:
                if self.id_of(key) is not None:
                    yield key
