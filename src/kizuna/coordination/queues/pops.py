"""Taking a single task under a lease of its own."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from typing import TYPE_CHECKING

from kizuna.coordination.queues.taking import LOOK_ANYWAY_S, Handed, Taking, give_back
from kizuna.errors import StoreError

if TYPE_CHECKING:
    from kizuna.coordination.queues.group_keys import GroupKeys
    from kizuna.coordination.queues.tasks import Delivery
    from kizuna.store.client import Store

log = logging.getLogger("kizuna.coordination")


class Pop:
    """One attempt to get one task, by a consumer that exists for nothing else."""

    def __init__(self, store: Store, keys: GroupKeys, consumer: str, taking: Taking) -> None:
        self._store, self._keys, self._consumer, self._taking = store, keys, consumer, taking
        self._under_way: asyncio.Task[Handed] | None = None
        self._due_s = LOOK_ANYWAY_S[1]

    async def one(self, wait_s: float) -> Delivery | None:
        """None if there is none within that time."""
        try:
            return await self._ask(waits=False) or (await self._wait(wait_s) if wait_s > 0 else None)
        except BaseException:
            # It may have been handed out to us on the way.
            await asyncio.shield(self._undo())
            raise

    async def _wait(self, wait_s: float) -> Delivery | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        async with self._store.events.listen(self._keys.wake_of + self._consumer) as feed:
            while (left_s := deadline - loop.time()) > 0:
                if delivery := await self._ask(waits=True):
                    return delivery
                pause_s = random.uniform(*LOOK_ANYWAY_S)  # noqa: S311 - not a secret
                await feed.next(timeout_s=min(left_s, pause_s, self._due_s))
            return await self._ask(waits=False) if await self._taking.no_longer_waits() else None

    async def _ask(self, *, waits: bool) -> Delivery | None:
        while True:
            self._under_way = asyncio.create_task(self._taking.ask(1, waits=waits))
            handed = await asyncio.shield(self._under_way)
            self._due_s = handed.due_ms / 1000 if handed.due_ms > 0 else LOOK_ANYWAY_S[1]
            # Also when we have got one: where there is always one, nobody else would do it.
            may_be_more = await self._taking.tidy(handed) or handed.word == b"again"
            if handed.deliveries:
                return handed.deliveries[0]
            if not may_be_more:
                return None

    async def _undo(self) -> None:
        if self._under_way is not None:
            with suppress(StoreError):
                await self._under_way
        try:
            await give_back(self._store, self._keys, self._consumer, "left")
        except StoreError as error:
            # What was handed out comes back when its lease ends.
            log.warning("task not given back", extra={"consumer": self._consumer, "error": str(error)})
