"""Waiting for a lock: told when it is our turn, and asking by ourselves now and then in case nobody told us.

One subscription to each root serves all who wait in this process. It is made when somebody has to wait for the
first time, and stays until the store is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from kizuna.coordination.keys import LOCKS_FREED
from kizuna.coordination.locks.steps import GRACE_S
from kizuna.errors import KizunaError, Unreachable
from kizuna.store.events import Message

if TYPE_CHECKING:
    from kizuna.store.client import Store

# Who is first in line looks that often; who is further back, more rarely. It finds what nobody tells us of: a lock
# that an outsider deleted, and one whose turn it was and who never came.
_LOOK_EVERY_S = 1.0
_LOOK_AT_LEAST_EVERY_S = 10.0
# The server counts whole milliseconds: what has 0 of them left may be there for the rest of one.
_ROUNDING_S = 0.001


def pause_s(free_in_s: float, place: int) -> float:
    """How long to wait at most before asking again: until the lease ends, each after those before it in line."""
    after_those_before = place * GRACE_S
    return min(
        free_in_s + after_those_before + _ROUNDING_S,
        _LOOK_EVERY_S + after_those_before,
        _LOOK_AT_LEAST_EVERY_S,
    )


class Turn:
    """Of one who waits: what it was told."""

    def __init__(self) -> None:
        self._now = False
        self._soon = False
        self._error: KizunaError | None = None
        self._stirred = asyncio.Event()

    def tell(self, *, soon: bool = False, error: KizunaError | None = None) -> None:
        self._now = self._now or not soon
        self._soon = self._soon or soon
        self._error = self._error or error
        self._stirred.set()

    async def come(self, within_s: float) -> None:
        """Return when it is time to ask: it is our turn, or something may have been missed, or the time is up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while not self._now and loop.time() < until:
            self._stirred.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._stirred.wait()
            if self._soon:
                # The one before us was told to come. If it has not by then, nobody else will tell us.
                self._soon, until = False, min(until, loop.time() + GRACE_S + _ROUNDING_S)
        self._now = False
        if self._error is not None:
            raise self._error


class Turns:
    def __init__(self, store: Store, process: str) -> None:
        self._store, self._process = store, process
        self._ears: dict[str, _Ear] = {}

    def hears(self, root: str) -> bool:
        """Whether whoever lines up below this root now will be told when it is its turn."""
        return root in self._ears and self._ears[root].hears

    @asynccontextmanager
    async def waiting(self, root: str, token: str) -> AsyncIterator[Turn]:
        """Be told when it is the token's turn. Entered once we hear: line up after that."""
        ear = await self._ear(root)
        turn = ear.waiting[token] = Turn()
        try:
            yield turn
        finally:
            del ear.waiting[token]

    async def _ear(self, root: str) -> _Ear:
        ear = self._ears.get(root)
        if ear is None or ear.over:
            ear = self._ears[root] = _Ear(self._store, LOCKS_FREED.build(root, process=self._process))
        await ear.opened()
        return ear


class _Ear:
    """One subscription. It is over when it could not be made, or could no longer be kept."""

    def __init__(self, store: Store, channel: str) -> None:
        self.waiting: dict[str, Turn] = {}
        self.hears = False
        self._store, self._channel = store, channel
        self._settled = asyncio.Event()
        self._error: KizunaError | None = None
        self._task = asyncio.create_task(self._run(), name="kizuna lock turns")

    @property
    def over(self) -> bool:
        return self._task.done()

    async def opened(self) -> None:
        await self._settled.wait()
        if self._error is not None:
            raise type(self._error)(*self._error.args)

    async def _run(self) -> None:
        try:
            await self._listen()
            self._error = Unreachable("the store was closed", "locks", "connect again")
        except KizunaError as error:
            self._error = error
        finally:
            self.hears = False
            self._settled.set()
            for turn in self.waiting.values():
                turn.tell(error=self._error and type(self._error)(*self._error.args))

    async def _listen(self) -> None:
        async with self._store.events.listen(self._channel) as feed:
            self.hears = True
            self._settled.set()
            async for event in feed:
                if isinstance(event, Message):
                    self._dispatch(event.payload.decode(errors="replace"))
                else:
                    for turn in self.waiting.values():
                        turn.tell()

    def _dispatch(self, payload: str) -> None:
        word, _, token = payload.partition(":")
        turn = self.waiting.get(token)
        if turn is not None:
            turn.tell(soon=word == "soon")
