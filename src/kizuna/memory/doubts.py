"""Writes whose answer was lost. Whoever tries one again says how long ago it was tried first: others may have written
the item or context since, and then only the feed knows whether it has happened (`lua/parts/repeating.lua`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from kizuna.errors import OutcomeForgotten, OutcomeUnknown
from kizuna.store.repeating import until_known

# The oldest are let go: nobody tries again for so long.
_MOST = 10_000
_SLACK_S = 1.0

Attempt = Callable[[str], Awaitable[Any]]
"""Takes how long ago it was tried first, in ms; nothing, if it was not."""


class Doubts:
    """Knows them by their tokens. `timeout_s` is how long a command may wait before it is sent."""

    def __init__(self, timeout_s: float) -> None:
        self._margin_s = timeout_s + _SLACK_S
        self._since: dict[str, float] = {}
        """When they were tried first, by the clock of `time.monotonic`."""

    def __contains__(self, token: str) -> bool:
        return token in self._since

    def add(self, token: str, ago_s: float) -> None:
        """It was tried so long ago, and is to be tried again."""
        if len(self._since) >= _MOST:
            del self._since[next(iter(self._since))]
        self._since.setdefault(token, time.monotonic() - ago_s)

    async def until_known(self, what: str, id_: str, token: str, attempt: Attempt) -> Any:
        """What became of it. OutcomeUnknown if no answer comes, OutcomeForgotten if nobody can tell any more."""
        tried_at = self._since.get(token)
        began = time.monotonic() if tried_at is None else tried_at
        try:
            outcome = await until_known(
                lambda: attempt("" if tried_at is None else self._ms_since(began)),
                lambda: attempt(self._ms_since(began)),
            )
        except (OutcomeUnknown, asyncio.CancelledError):
            self.add(token, time.monotonic() - began)
            raise
        if tried_at is not None:
            self._since.pop(token, None)
        if outcome[0] == b"forgotten":
            raise OutcomeForgotten(what, id_)
        return outcome

    def _ms_since(self, began: float) -> str:
        # More rather than less: it may wait for a connection before it is sent, and the clocks are two.
        return f"{(time.monotonic() - began + self._margin_s) * 1000:.0f}"
