"""Who holds which lock: for people who look after them."""

from __future__ import annotations

import asyncio
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

from kizuna.coordination.keys import LOCK
from kizuna.coordination.locks.steps import lock_keys, process_of
from kizuna.store.scanning import batches_of_names

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots

_OURS = re.compile(rb"(\d{1,16}):(.+/[^/]+)")


class Holder(Struct, frozen=True, kw_only=True):
    """What the server knows about a lock that is held."""

    lock: str
    process: str
    """Empty if it was taken by hand, by a program that is not ours."""
    token: str
    fence: int
    """0 if it was taken by hand."""
    ends_in_s: float
    """Infinite if it was taken by hand, without an end."""
    waiting: int
    value: bytes
    """As it stands on the server."""


def read_value(value: bytes) -> tuple[int, str]:
    """The fencing number and the token; number 0 and the whole text, if it is none of ours."""
    ours = _OURS.fullmatch(value)
    if ours is None:
        return 0, value.decode(errors="backslashreplace")
    return int(ours[1]), ours[2].decode(errors="backslashreplace")


async def holder_of(store: Store, root: str, name: str) -> Holder | None:
    keys = lock_keys(root, name)
    value, ttl_ms, waiting = await asyncio.gather(
        store.call("GET", keys.lock), store.call("PTTL", keys.lock), store.call("ZCARD", keys.line)
    )
    if value is None:
        return None
    fence, token = read_value(value)
    return Holder(
        lock=name,
        process=process_of(token) if fence else "",
        token=token,
        fence=fence,
        ends_in_s=float("inf") if ttl_ms == -1 else max(0, ttl_ms) / 1000,
        waiting=waiting,
        value=value,
    )


async def all_holders(store: Store, roots: Roots, pattern: str) -> list[Holder]:
    found: dict[str, Holder] = {}
    async for batch in batches_of_names(store, roots, LOCK):
        names = [each["lock"] for each in batch if fnmatchcase(each["lock"], pattern)]
        holders = await asyncio.gather(*(holder_of(store, roots.of(name), name) for name in names))
        # A scan may name a key twice.
        found |= {holder.lock: holder for holder in holders if holder is not None}
    return [found[name] for name in sorted(found)]
