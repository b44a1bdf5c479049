"""A short cut for answers: besides being written, a lone and small one is published on a channel that is called like
its path, and whoever waits for it need not read the key.

The key stays the truth: all else, from claims to reconnects, goes by it, and who does not publish, or does not listen,
is served as well. Published first and written behind it in one go, so what was heard can be read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from kizuna.errors import PermissionDenied

if TYPE_CHECKING:
    from kizuna.store.client import Store

log = logging.getLogger("kizuna.units")

LARGEST_BYTES = 4096
"""Above it, reading costs less than telling: the server keeps what is published for each who listens slowly."""


class ShortCut:
    """Hears what is published on these channels."""

    def __init__(self, store: Store, channels: Sequence[str], on_answer: Callable[[bytes, bytes], None]) -> None:
        self._store, self._channels, self._on_answer = store, channels, on_answer
        self._opening = asyncio.Lock()
        self._subscribed = AsyncExitStack()
        self._is_open = False

    async def open(self) -> None:
        """Harmless when repeated, and where it is not allowed."""
        async with self._opening:
            if not self._is_open and can_be_taken(self._store):
                self._is_open = True
                await self._subscribe()

    async def aclose(self) -> None:
        async with self._opening:
            self._is_open = False
            await self._subscribed.aclose()

    async def _subscribe(self) -> None:
        try:
            for channel in self._channels:
                tap = self._store.events.tap_messages(channel, self._on_answer)
                await self._subscribed.enter_async_context(tap)
        except PermissionDenied as error:
            log.debug("no short cut", extra={"error": str(error)})


def can_be_taken(store: Store) -> bool:
    """On a cluster what is published goes to all nodes, which costs more than a look. And channels know nothing of
    databases: what is published in one would be heard in all, as an answer to a request of the same name."""
    return store.target.kind != "cluster" and store.target.database == 0
