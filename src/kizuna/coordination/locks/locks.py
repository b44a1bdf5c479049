"""Locks: one of many processes at a time, in the order in which they came.

    async with k.locks.hold("issue:123") as held:
        await write(…, fence=held.fence)

A lock is a lease: it ends by itself when its holder no longer renews it. So a holder that is held up for longer than
that is told that it has lost the lock, and is refused by its number where it did not listen. They are not reentrant:
a task that asks for a lock which it holds waits for itself.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

from kizuna.coordination.background import Background
from kizuna.coordination.keys import LOCK
from kizuna.coordination.locks.holders import Holder, all_holders, holder_of, read_value
from kizuna.coordination.locks.keeping import LEAST_LEASE_S, Held, Keeper, overtaken
from kizuna.coordination.locks.steps import Answer, LockSteps, Wish, held_key, lock_keys, process_of
from kizuna.coordination.locks.waiting import Turns, pause_s
from kizuna.errors import KizunaError, LockHeld, LockLost, WrongValue
from kizuna.interruption import Interruption
from kizuna.store.client import Store

__all__ = ["Held", "Hold", "Holder", "Locks"]

log = logging.getLogger("kizuna.coordination")

LONGEST_LEASE_S = 86_400
# How long a caller who gives up waits until that is known to the server.
_LEAVE_WITHIN_S = 0.25
_NOT_ASKED = Answer()
# How many locks of a dead process are given back at once.
_AT_ONCE = 500


class Locks:
    def __init__(self, store: Store, background: Background, process: str) -> None:
        self._store = store
        self._steps = LockSteps(store, process)
        self._keeper = Keeper(background, self._steps)
        self._turns = Turns(store, process)
        self._leaving: set[asyncio.Task[None]] = set()

    def hold(
        self,
        name: str,
        *,
        lease_s: float | None = None,
        wait_s: float | None = 10.0,
        renew: bool = True,
        cancel_when_lost: bool = True,
    ) -> Hold:
        """Hold the lock for the length of an `async with` block.

        Waits for it like `acquire`. If it is lost meanwhile, the block is cancelled and LockLost raised, as
        `asyncio.timeout` does it; with `cancel_when_lost=False` the block goes on, is told by `held.lost` and
        `held.check()`, and leaving it raises LockLost. An exception of the block's own goes up instead, with a note.
        """
        return Hold(self, name, lease_s, wait_s, renew, cancel_when_lost)

    async def acquire(
        self, name: str, *, lease_s: float | None = None, wait_s: float | None = 10.0, renew: bool = True
    ) -> Held:
        """Take the lock, and keep it until `held.release()`.

        Those who wait get it in the order in which they came. LockHeld after `wait_s`; 0 tries, None waits for ever.
        The lease is renewed as long as the lock is held, unless `renew` is False: then it ends after `lease_s`.
        """
        lease_s = self._store.settings.locks.lease_s if lease_s is None else lease_s
        _check(lease_s, wait_s)
        if renew:
            await self._keeper.be_ready_for(lease_s)
        wish = self._steps.wish(name, lease_s)
        try:
            return await self._take(wish, wait_s, renew)
        except BaseException as error:
            # Whatever became of it on the server: nobody is to wait for one who has left, or for its lease.
            if wait_s != 0 or not isinstance(error, LockHeld):
                await self._leave(wish)
            raise

    async def refuse_older(self, resource: str, fence: int, *, keep_s: float = 86_400) -> None:
        """Let this fencing number pass, and raise LockLost for every lower one from then on.

        For whoever looks after a resource: call it before each write, with the number that the writer brought. The
        highest number is remembered until `keep_s` after it was last shown.
        """
        if not 0 <= fence < 2**53:
            raise WrongValue("fence", str(fence), "a number that came with a lock")
        highest = await self._steps.highest_seen(resource, fence, keep_s)
        if highest > fence:
            raise overtaken(resource, fence, highest)

    async def holder(self, name: str) -> Holder | None:
        """Who holds the lock; None if it is free."""
        return await holder_of(self._store, self._steps.roots.of(name), name)

    async def ls(self, pattern: str = "*") -> list[Holder]:
        """All locks that are held now and fit the pattern (a glob), by name; those of outsiders, too."""
        return await all_holders(self._store, self._steps.roots, pattern)

    async def line(self, name: str) -> list[str]:
        """The processes that wait for the lock, in order; of a long line, the first hundred."""
        line = lock_keys(self._steps.roots.of(name), name).line
        return [process_of(token.decode()) for token in await self._store.call("ZRANGE", line, 0, 99)]

    async def break_lock(self, name: str) -> Holder | None:
        """Take the lock from whoever holds it, an outsider included, and return who that was; None if it was free.

        One of ours learns of it at its next renewal, and stops then: until that, two may be at work.
        """
        holder = await self.holder(name)
        if holder is None or not await self._steps.free(name, holder.value, holder.process or self._steps.process):
            return None
        log.warning("lock broken", extra={"lock": name, "holder": holder.process, "fence": holder.fence})
        return holder

    async def give_back(self, process: str) -> None:
        """Free every lock that this process holds: it is dead. Harmless when repeated, or done by many."""
        for root in self._steps.roots.all:
            keys = await self._store.call("ZRANGE", held_key(root, process), 0, -1)
            names = [names["lock"] for key in keys if (names := LOCK.parse(root, key))]
            for start in range(0, len(names), _AT_ONCE):
                await asyncio.gather(*(self._give_back(name, process) for name in names[start : start + _AT_ONCE]))

    # -- inside -----------------------------------------------------------------------------------------

    async def _take(self, wish: Wish, wait_s: float | None, renew: bool) -> Held:
        asked_at, answer = monotonic(), _NOT_ASKED
        # Only who can be told may stand in line: else the lock would wait for one who does not hear.
        if wait_s == 0 or not self._turns.hears(wish.root):
            answer = await self._steps.take(wish, None)
        if not answer.fence and wait_s != 0:
            deadline = float("inf") if wait_s is None else asked_at + wait_s
            asked_at, answer = await self._wait(wish, deadline)
        if not answer.fence:
            raise LockHeld(wish.name, answer.free_in_s)
        held = Held(wish, answer.fence, asked_at + wish.lease_s, self._steps, self._keeper, renewed=renew)
        self._keeper.look_after(held)
        return held

    async def _wait(self, wish: Wish, deadline: float) -> tuple[float, Answer]:
        async with self._turns.waiting(wish.root, wish.token) as turn:
            came_us = 0
            while True:
                asked_at = monotonic()
                answer = await self._steps.take(wish, came_us)
                if answer.fence or monotonic() >= deadline:
                    return asked_at, answer
                came_us = answer.came_us
                await turn.come(min(pause_s(answer.free_in_s, answer.place), deadline - monotonic()))

    async def _leave(self, wish: Wish) -> None:
        # In a task, so that it is done also where the caller is cancelled once more, or has no time to wait for it.
        leaving = asyncio.create_task(self._let_go(wish))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        await asyncio.wait([leaving], timeout=_LEAVE_WITHIN_S)

    async def _let_go(self, wish: Wish) -> None:
        try:
            # A server that is away may come back before the lease ends by itself.
            await self._steps.free(wish.name, wish.token, self._steps.process, timeout_s=wish.lease_s)
        except KizunaError as error:
            log.warning("lock may stay until its lease ends", extra={"lock": wish.name, "error": str(error)})

    async def _give_back(self, name: str, process: str) -> None:
        value = await self._steps.value_of(name)
        if value is not None and process_of(read_value(value)[1]) == process:
            log.info("lock given back", extra={"lock": name, "holder": process})
            await self._steps.free(name, value, process)


class Hold:
    """What `Locks.hold` returns: to be entered once."""

    __slots__ = ("_arguments", "_cancel_when_lost", "_held", "_interruption", "_locks", "_name")

    def __init__(
        self, locks: Locks, name: str, lease_s: float | None, wait_s: float | None, renew: bool, cancel_when_lost: bool
    ) -> None:
        self._locks, self._name = locks, name
        self._arguments = lease_s, wait_s, renew
        self._cancel_when_lost = cancel_when_lost
        self._held: Held
        self._interruption: Interruption | None = None

    async def __aenter__(self) -> Held:
        lease_s, wait_s, renew = self._arguments
        held = self._held = await self._locks.acquire(self._name, lease_s=lease_s, wait_s=wait_s, renew=renew)
        if self._cancel_when_lost:
            self._interruption = Interruption()
            held.on_lost = self._interruption.cancel
        return held

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        held = self._held
        held.on_lost = None
        only_we_cancelled = self._interruption is not None and self._interruption.take_back()
        try:
            await held.release()
        except LockLost as lost:
            if error is None or (only_we_cancelled and isinstance(error, asyncio.CancelledError)):
                raise
            error.add_note(f"besides: {lost}")


def _check(lease_s: float, wait_s: float | None) -> None:
    if not LEAST_LEASE_S <= lease_s <= LONGEST_LEASE_S:
        raise WrongValue("lease_s", f"{lease_s:g}", f"{LEAST_LEASE_S:g} to {LONGEST_LEASE_S:,} seconds")
    if wait_s is not None and not wait_s >= 0:
        raise WrongValue("wait_s", f"{wait_s:g}", "seconds; 0 to try, None to wait for ever")
