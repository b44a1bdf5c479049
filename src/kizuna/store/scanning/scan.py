"""Goes through the names of all keys, by SCAN, in steps that nobody else notices.

What was there all the while is found. What came or went meanwhile may be, and the server may name a key twice. On a
cluster the primaries are gone through one after the other; where slots moved from one to another meanwhile, keys in
them may be missing or come twice, and `moved_slots` says how many slots did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from kizuna.errors import Unreachable
from kizuna.store.scanning.globs import Wanted, covering
from kizuna.store.scanning.pacing import Pace

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.keys import KeyType
    from kizuna.store.link import Link


class Scan:
    """The keys that are wanted, by patterns of which one has to match, of whatever type or of one. Goes through them
    once."""

    def __init__(self, store: Store, wanted: Wanted | Sequence[str], *, type: KeyType = "any") -> None:  # noqa: A002 - what the server calls it
        self.total = 0
        """How many keys there are on all primaries, of whatever name; known after `begin`."""
        self.passed = 0
        """About how many of them were passed by now."""
        self.moved_slots = 0
        """Of a cluster, when the scan is over: how many slots went to another primary meanwhile."""
        self._store = store
        self.wanted = wanted if isinstance(wanted, Wanted) else Wanted(wanted)
        self._glob, self._matches = covering(self.wanted.patterns), self.wanted.matcher()
        self._of_type = () if type == "any" else ("TYPE", type)
        self.pace = Pace()
        """Also for what is asked about the keys that are found."""

    async def begin(self) -> None:
        """Ask for the total; a scan that shows no progress can do without it."""
        self.total = sum((await self._store.call_each_primary("DBSIZE")).values())

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        await self._store.topology.refresh()
        before = self._store.topology.owners()
        for link in self._store.topology.primaries():
            async for keys in self._scan_primary(link):
                yield keys
        await self._store.topology.refresh()
        after = self._store.topology.owners()
        self.moved_slots = sum(one != other for one, other in zip(before, after, strict=True))

    async def _scan_primary(self, link: Link) -> AsyncIterator[list[bytes]]:
        cursor, connection = b"0", 0
        while True:
            count = self.pace.count
            command = ("SCAN", cursor, "MATCH", self._glob, "COUNT", count, *self._of_type)
            reply: list[Any] = await self.pace.keep(self._store.call_at(link, *command))
            if connection and link.connections != connection:
                # A cursor is a place in the tables of one server: to the next one it means nothing.
                raise Unreachable(
                    "the connection was lost while the keys were listed, and they may be another server's now",
                    link.describe(),
                    "nothing was changed by it; begin again",
                )
            (cursor, found), connection = reply, link.connections
            self.passed = min(self.passed + count, self.total)
            if keys := [key for key in found if self._matches(key)]:
                yield keys
            if cursor == b"0":
                return
