"""minimatch's lock as its own library takes it: key after key, with plain commands and none of our code."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kizuna.testing.resp import Conversation

# The library says 5 s, and extends; this one does not.
VALIDITY_MS = 60_000
MAJORITY = 2

_RELEASE = 'if redis.call("GET",KEYS[1]) == ARGV[1] then return redis.call("DEL",KEYS[1]) else return 0 end'


def lock_keys(prefix: str) -> list[str]:
    return [f"rueidislock:{number}:{prefix}fetchTicketsLock" for number in range(3)]


class GoLock:
    def __init__(self, conversation: Conversation, prefix: str) -> None:
        self._conversation = conversation
        self._keys = lock_keys(prefix)

    @contextmanager
    def hold(self, *, within_s: float = 30.0) -> Iterator[bytes]:
        token = self._take(time.monotonic() + within_s)
        try:
            yield token
        finally:
            self.release(token)

    def try_once(self) -> bytes | None:
        """The token if it was free; else nothing is held."""
        token, taken = secrets.token_bytes(24), 0
        for key in self._keys:
            taken += self._take_key(key, token)
        if taken >= MAJORITY:
            return token
        self.release(token)
        return None

    def release(self, token: bytes) -> None:
        for key in self._keys:
            self._conversation.call("EVAL", _RELEASE, 1, key, token)

    def _take(self, until: float) -> bytes:
        while (token := self.try_once()) is None:
            assert time.monotonic() < until, "the lock was never free"
            time.sleep(0.001)
        return token

    def _take_key(self, key: str, token: bytes) -> bool:
        ends_at_ms = round(time.time() * 1000) + VALIDITY_MS
        self._conversation.call("SET", key, token, "NX", "PXAT", ends_at_ms)
        return bool(self._conversation.call("GET", key) == token)
