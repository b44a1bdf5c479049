"""One read for all who ask at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedReads(Generic[T]):
    """Whoever asks while a read is under way waits for it to end, and shares the next one with all others who wait: so
    nobody is told what was read before he asked, and there are never two reads at once."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        if self._next is None:
            self._next = asyncio.ensure_future(self._after(self._running))
            self._next.add_done_callback(self._forget)
        # Others share it: it goes on when one of them leaves.
        return await asyncio.shield(self._next)

    async def _after(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await self._read()

    def _forget(self, task: asyncio.Task[T]) -> None:
        if self._running is task:
            self._running = None
        if not task.cancelled():
            # Whoever still waits is told of it; if nobody does, it is no news.
            task.exception()

    async def aclose(self) -> None:
        tasks = [task for task in (self._running, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
