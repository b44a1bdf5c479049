"""Values of keys that are read together.

Reading         what was heard of at once is asked for by one MGET, and handed to whoever wants it
read_values     the same to be awaited; what others ask for meanwhile is read with it
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from kizuna.errors import StoreError
from kizuna.units.writing import parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kizuna.store.client import Store
    from kizuna.store.wire import Command
    from kizuna.units.writing import Writing


class Wanting(Protocol):
    def take_value(self, key: bytes, value: bytes | None) -> None:
        """Of a key that was asked for; None if it is not there, or no string."""

    def take_trouble(self, key: bytes, error: StoreError) -> None:
        """It could not be read."""


class Reading:
    def __init__(self, store: Store, writing: Writing) -> None:
        self._store, self._writing = store, writing
        self._spread = store.target.kind == "cluster"

    def ask(self, asked: Sequence[tuple[bytes, Wanting]]) -> None:
        """Read these keys now, each for somebody."""
        for part in parts_of(len(asked)):
            self._ask_part(asked[part])

    def commands_for(self, keys: Sequence[bytes]) -> list[Command]:
        """That read these keys: a cluster has no command for keys in different slots."""
        return [("GET", key) for key in keys] if self._spread or len(keys) == 1 else [("MGET", *keys)]

    def values_in(self, replies: Sequence[Any], keys: Sequence[bytes]) -> Sequence[Any]:
        """What the replies to these commands say: a value, None or an error for each key."""
        if self._spread or len(keys) == 1:
            # Unlike MGET, GET takes it as an error that a key is of another type.
            return [None if getattr(reply, "code", "") == "WRONGTYPE" else reply for reply in replies]
        (values,) = replies
        return [values] * len(keys) if isinstance(values, StoreError) else values

    def _ask_part(self, asked: Sequence[tuple[bytes, Wanting]]) -> None:
        keys = [key for key, _ in asked]

        def hand_out(replies: list[Any]) -> None:
            for (key, wanting), value in zip(asked, self.values_in(replies, keys), strict=True):
                if type(value) is bytes or value is None:
                    wanting.take_value(key, value)
                else:
                    wanting.take_trouble(key, value)
            # Behind those who got their reply, and may well ask for more.
            self._writing.expect()

        self._store.post_all(self.commands_for(keys), hand_out)


async def read_values(store: Store, keys: Sequence[bytes]) -> list[bytes | None]:
    """None for a key that is not there, or is no string. Raises StoreErrors."""
    replies = await asyncio.gather(*map(store.get, keys), return_exceptions=True)
    return [_value(reply) for reply in replies]


def without_errors(replies: list[Any]) -> list[Any]:
    """The replies to `call_all`, if none of them is an error; else the first one is raised."""
    for reply in replies:
        if isinstance(reply, StoreError):
            raise reply
    return replies


def _value(reply: bytes | BaseException | None) -> bytes | None:
    if isinstance(reply, StoreError) and reply.code == "WRONGTYPE":
        # What GET takes as an error is nothing to MGET; and which of them is sent depends on who else asks.
        return None
    if isinstance(reply, BaseException):
        raise reply
    return reply
