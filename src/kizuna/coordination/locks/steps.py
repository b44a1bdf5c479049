"""What can be done to a lock on the server, one script each.

    take ──> taken                              renewed, verified ──> freed, and the next one in line is told
         └─> in line ──> its turn ──> taken

This module decides nothing: who waits, for how long, and what becomes of the holder is in `locks`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from kizuna.clock import milliseconds
from kizuna.coordination.keys import (
    LOCK,
    LOCKS_FENCE,
    LOCKS_FREED,
    LOCKS_HELD,
    LOCKS_LINE,
    LOCKS_SEEN,
    LOCKS_TURN,
)
from kizuna.coordination.roots import roots_of
from kizuna.store.repeating import until_known
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.wire import Argument

take_lock = Script.load(__package__, "take_lock")
free_lock = Script.load(__package__, "free_lock")
renew_locks = Script.load(__package__, "renew_locks")
refuse_older = Script.load(__package__, "refuse_older")

GRACE_S = 0.25
"""How long the one whose turn it is may take to come for the lock, before others may; as in free_lock.lua."""
# Renewed in pieces, so that no call keeps the server from others for long.
_ROWS = 500


class LockKeys(NamedTuple):
    """In the order of the scripts' headers."""

    lock: str
    line: str
    turn: str


class Wish(NamedTuple):
    """One attempt to hold one lock. The token is its identity: whatever is repeated with it is harmless."""

    name: str
    root: str
    keys: LockKeys
    token: str
    lease_s: float


class Answer(NamedTuple):
    """Either `fence`, and the lock is ours, or when it may be free and where we stand."""

    fence: int = 0
    free_in_s: float = 0.0
    place: int = 0
    came_us: int = 0


class Renewal(NamedTuple):
    lock: str
    value: str
    lease_s: float


class LockSteps:
    def __init__(self, store: Store, process: str) -> None:
        self.process = process
        self.roots = roots_of(store)
        self._store = store
        # On a cluster a channel may be heard at another node than the one that runs the script.
        self._deaf = "trust" if store.target.kind == "cluster" else "skip"
        self._tokens = map(f"{process}/{secrets.token_hex(6)}-{{}}".format, count(1))

    def wish(self, name: str, lease_s: float) -> Wish:
        root = self.roots.of(name)
        return Wish(name, root, lock_keys(root, name), next(self._tokens), lease_s)

    async def take(self, wish: Wish, came_us: int | None) -> Answer:
        """Ask for the lock. `came_us` is None for one who will not wait, 0 for one who begins to, and then what the
        answer says. What was sent and not answered is asked again, once: the token makes it harmless."""
        root, (lock, line, turn) = wish.root, wish.keys
        arguments: dict[str, Any] = {
            "lock": lock,
            "line": line,
            "turn": turn,
            "fence": fence_key(root),
            "held": held_key(root, self.process),
            "token": wish.token,
            "lease_ms": milliseconds(wish.lease_s),
            "came_us": "" if came_us is None else came_us,
        }
        answer = await until_known(lambda: take_lock(self._store, **arguments), attempts=2)
        if answer[0] == b"taken":
            return Answer(answer[1])
        return Answer(0, _seconds_left(answer[1]), answer[2], answer[3])

    async def free(self, name: str, token: str | bytes, process: str, *, timeout_s: float | None = None) -> bool:
        """Let go of whatever this token of the process has of the lock; whether it held it. What was sent and not
        answered is sent again, once. Who has the time waits that long for a server that is away."""
        root = self.roots.of(name)
        lock, line, turn = lock_keys(root, name)
        arguments: dict[str, Any] = {
            "lock": lock,
            "line": line,
            "turn": turn,
            "held": held_key(root, process),
            "token": token,
            "freed": freed_channels(root),
            "deaf": self._deaf,
        }

        async def free() -> bool:
            return bool(await free_lock(self._store, timeout_s=timeout_s, **arguments) == b"released")

        async def again() -> bool:
            # That it is not held now may well be the doing of the first one.
            await free()
            return True

        return await until_known(free, again, attempts=2)

    async def renew(self, store: Store, root: str, renewals: Sequence[Renewal], timeout_s: float) -> list[bool]:
        """Which of these locks, all below one root, are still held. `store` is that of the thread we are in."""
        held, kept = held_key(root, self.process), []
        for start in range(0, len(renewals), _ROWS):
            rows: list[dict[str, Argument]] = [
                {"lock": lock, "value": value, "lease_ms": milliseconds(lease_s)}
                for lock, value, lease_s in renewals[start : start + _ROWS]
            ]
            kept += await renew_locks.rows(store, rows, held=held, timeout_s=timeout_s)
        return [outcome == b"kept" for outcome in kept]

    async def value_of(self, name: str) -> bytes | None:
        return await self._store.get(lock_keys(self.roots.of(name), name).lock)

    async def highest_seen(self, resource: str, fence: int, keep_s: float) -> int:
        """The highest number that ever came to the resource, this one included."""
        seen = LOCKS_SEEN.build(self.roots.of(resource), resource=resource)
        _, highest = await refuse_older(self._store, seen=seen, number=fence, keep_ms=milliseconds(keep_s))
        return int(highest)


@lru_cache(maxsize=4096)
def lock_keys(root: str, name: str) -> LockKeys:
    return LockKeys(
        lock=LOCK.build(root, lock=name),
        line=LOCKS_LINE.build(root, lock=name),
        turn=LOCKS_TURN.build(root, lock=name),
    )


@lru_cache(maxsize=4096)
def held_key(root: str, process: str) -> str:
    return LOCKS_HELD.build(root, process=process)


@lru_cache(maxsize=4096)
def fence_key(root: str) -> str:
    return LOCKS_FENCE.build(root)


@lru_cache(maxsize=4096)
def freed_channels(root: str) -> str:
    """What the channels of all processes begin with."""
    return LOCKS_FREED.glob(root).removesuffix("*")


def process_of(token: str) -> str:
    """The process that made the token; empty for what an outsider wrote."""
    return token.rpartition("/")[0]


def _seconds_left(ms: int) -> float:
    return float("inf") if ms == -1 else max(0, ms) / 1000
