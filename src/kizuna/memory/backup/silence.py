"""Notices that the server is silent, and lets go those who wait for it: one timer for all of them, and a question to
the server only when somebody has waited for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from kizuna.errors import OutcomeUnknown, StoreError, Unreachable

Ping = Callable[[float], Awaitable[None]]
"""Ask the server for a sign of life, within that time; StoreError if there is none."""


# It answers, and says that it cannot serve anybody now.
_NOT_NOW = frozenset({"LOADING", "MASTERDOWN", "CLUSTERDOWN"})


def is_away(error: StoreError) -> bool:
    """Whether nobody is there; all else is an answer."""
    return isinstance(error, (Unreachable, OutcomeUnknown)) or error.code in _NOT_NOW


class Silence:
    """A server that is slow is not silent: what it is asked is answered in turn, and so is the question."""

    def __init__(self, ping: Ping, patience_s: float, on_silence: Callable[[StoreError], None]) -> None:
        self._ping, self._on_silence = ping, on_silence
        # Half the time we wait for the answer, and half for that sign.
        self._half_s = patience_s / 2
        self._waiting: dict[asyncio.Timeout, float] = {}
        """Since when each waits; the first has waited longest."""
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    def begin(self, limit: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        self._waiting[limit] = loop.time()
        if self._timer is None and self._asking is None:
            self._timer = loop.call_later(self._half_s, self._look)

    def end(self, limit: asyncio.Timeout) -> None:
        self._waiting.pop(limit, None)

    def let_go(self) -> None:
        """Everybody who waits now gets a TimeoutError."""
        now = asyncio.get_running_loop().time()
        for limit in list(self._waiting):
            limit.reschedule(now)
        self._waiting.clear()

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
            with suppress(asyncio.CancelledError):
                await self._asking

    def _look(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        longest_s = loop.time() - next(iter(self._waiting.values()))
        if longest_s < self._half_s:
            self._timer = loop.call_later(self._half_s - longest_s, self._look)
        else:
            self._asking = loop.create_task(self._ask(), name="kizuna memory asks for a sign of life")

    async def _ask(self) -> None:
        try:
            await self._ping(self._half_s)
        except StoreError as error:
            self._on_silence(error)
        finally:
            self._asking = None
            if self._waiting:
                # It lives, and they wait on; so do we.
                self._timer = asyncio.get_running_loop().call_later(self._half_s, self._look)
