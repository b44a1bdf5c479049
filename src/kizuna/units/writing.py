"""Values that are written together: what is set in one turn of the loop leaves as one entry in the line of the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kizuna.store.packing import HOLE, template

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.taking import Taker
    from kizuna.store.wire import Command


# The other side begins with the first part while we are still busy with the next; each costs a write and a read.
_SMALLEST_PART = 32


def parts_of(number: int) -> Iterator[slice]:
    """What has gathered leaves in parts, so that client and server need not wait for each other."""
    size = max(_SMALLEST_PART, number // 4)
    return (slice(start, start + size) for start in range(0, number, size))


class Writing:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._gathered: list[tuple[Taker, bytes, bytes, int]] = []
        self._is_expected = False

    def set(self, taker: Taker, key: bytes, value: bytes, ttl_ms: int, *, alone: bool) -> None:
        """Each key by itself, with an end; the taker is told what came of it. `alone`: nobody else is about to write,
        so there is nothing to wait for."""
        if not self._is_expected:
            if alone:
                self._store.post(taker, "SET", key, value, "PX", ttl_ms)
                return
            self.expect()
        self._gathered.append((taker, key, value, ttl_ms))

    def expect(self) -> None:
        """Whoever is about to run may well write something: what gathers meanwhile leaves right behind them."""
        if not self._is_expected:
            self._is_expected = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_expected = False
        gathered, self._gathered = self._gathered, []
        for part in parts_of(len(gathered)):
            self._send_part(gathered[part])

    def _send_part(self, gathered: list[tuple[Taker, bytes, bytes, int]]) -> None:
        def tell(replies: list[Any]) -> None:
            for (taker, *_), reply in zip(gathered, replies, strict=True):
                if type(reply) is bytes:
                    taker.set_result(reply)
                else:
                    taker.set_exception(reply)

        commands: list[Command] = [("SET", key, value, "PX", ttl_ms) for _, key, value, ttl_ms in gathered]
        packed = [_set(ttl_ms) % (len(key), key, len(value), value) for _, key, value, ttl_ms in gathered]
        self._store.post_all(commands, tell, packed=b"".join(packed))


@lru_cache(maxsize=1024)
def _set(ttl_ms: int) -> bytes:
    return template("SET", HOLE, HOLE, "PX", ttl_ms)
