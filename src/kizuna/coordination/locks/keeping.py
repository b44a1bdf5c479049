"""A lock while it is held: renewed from the background's thread, and its holder told when it is lost.

taken ──> held ──renewed every third of the lease──> held ──> released
            └─ the value on the server is another, or the lease has ended by our own clock ──> lost
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from kizuna.coordination.locks.steps import LockSteps, Renewal, Wish
from kizuna.errors import LockLost, NotSent, OutcomeUnknown

if TYPE_CHECKING:
    from kizuna.coordination.background import Background, Repetition
    from kizuna.store.client import Store

log = logging.getLogger("kizuna.coordination")

LEAST_LEASE_S = 0.05
_TOO_LATE = "its lease ended before it could be renewed"
_RELEASED = "it was released"
_NOT_OURS = "it is not ours on the server any more"


class Held:
    """A lock in our hands. `fence` is the number to give to the resource; `lost` is set when it is no longer ours."""

    __slots__ = ("_keeper", "_reason", "_released", "_steps", "_wish", "ends_at", "fence", "lost", "on_lost", "renewed")

    def __init__(
        self, wish: Wish, fence: int, ends_at: float, steps: LockSteps, keeper: Keeper, *, renewed: bool
    ) -> None:
        self.fence = fence
        self.lost = asyncio.Event()
        self.ends_at = ends_at
        """On the monotonic clock: until then nobody else can have it, whatever happens."""
        self.renewed = renewed
        self.on_lost: Callable[[], object] | None = None
        self._wish, self._steps, self._keeper = wish, steps, keeper
        self._reason = ""
        self._released = False

    @property
    def name(self) -> str:
        return self._wish.name

    @property
    def token(self) -> str:
        return self._wish.token

    @property
    def root(self) -> str:
        return self._wish.root

    @property
    def lease_s(self) -> float:
        return self._wish.lease_s

    @property
    def renewal(self) -> Renewal:
        return Renewal(self._wish.keys.lock, self._value, self.lease_s)

    @property
    def _value(self) -> str:
        return f"{self.fence}:{self._wish.token}"

    def check(self) -> None:
        """Raise LockLost if it is known to be lost: told so, or the lease has ended. Asks nobody, costs nothing."""
        if self._released:
            raise LockLost(self.name, _RELEASED)
        if monotonic() >= self.ends_at:
            self.lose(_TOO_LATE)
        if self.lost.is_set():
            raise LockLost(self.name, self._reason)

    async def verify(self) -> None:
        """Ask the server whether it is still ours, and raise LockLost if not."""
        self.check()
        if await self._steps.value_of(self.name) != self._value.encode():
            self.lose(_NOT_OURS)
            raise LockLost(self.name, self._reason)

    async def guard(self, resource: str, *, keep_s: float = 86_400) -> None:
        """Raise LockLost if a later holder has come to this resource already. See `Locks.refuse_older`."""
        highest = await self._steps.highest_seen(resource, self.fence, keep_s)
        if highest > self.fence:
            raise overtaken(resource, self.fence, highest)

    async def release(self) -> None:
        """Give it back and wake who waits. Raises LockLost if it was not ours any more. Harmless when repeated.

        If the server cannot be reached, the lock ends with its lease; that is logged, and no error, for all that was
        done under the lock was done in time.
        """
        if self._released:
            return
        self.check()
        self._released = True
        self._keeper.forget(self)
        try:
            was_held = await self._steps.free(self.name, self._value, self._steps.process)
        except (NotSent, OutcomeUnknown) as error:
            left_s = max(0.0, self.ends_at - monotonic())
            log.warning(
                "lock not released", extra={"lock": self.name, "ends_in_s": round(left_s, 1), "error": str(error)}
            )
            return
        if not was_held:
            self.lose(_NOT_OURS)
            raise LockLost(self.name, self._reason)

    def lose(self, reason: str) -> None:
        """Tell the holder. Only for the loop in which it was taken."""
        if self.lost.is_set():
            return
        self._reason = reason
        self._keeper.forget(self)
        self.lost.set()
        log.warning("lock lost", extra={"lock": self.name, "fence": self.fence, "reason": reason})
        if self.on_lost is not None:
            self.on_lost()


def overtaken(resource: str, fence: int, highest: int) -> LockLost:
    return LockLost(resource, f"number {fence} is refused, for number {highest} was here already")


class Keeper:
    """Looks after all locks that this process holds; to be looked after costs a dict entry."""

    def __init__(self, background: Background, steps: LockSteps) -> None:
        self._background, self._steps = background, steps
        self._held: dict[str, Held] = {}
        self._starting = asyncio.Lock()
        self._every_s = float("inf")
        self._renewing: Repetition | None = None
        self._loop: asyncio.AbstractEventLoop
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0

    async def be_ready_for(self, lease_s: float) -> None:
        """Renew often enough for such a lease. To be awaited before the lock is taken, whose time runs from then."""
        if lease_s / 3 < self._every_s:
            async with self._starting:
                await self._renew_every(lease_s / 3)

    def look_after(self, held: Held) -> None:
        self._held[held.token] = held
        if self._alarm is None or held.ends_at < self._alarm_at:
            self._set_alarm(held.ends_at)

    def forget(self, held: Held) -> None:
        self._held.pop(held.token, None)

    async def _renew_every(self, every_s: float) -> None:
        if every_s >= self._every_s:
            return
        self._loop = asyncio.get_running_loop()
        former = self._renewing
        self._renewing = await self._background.repeat(self.renew, every_s=every_s, name="renewal of locks")
        self._every_s = every_s
        if former is not None:
            former.stop()

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = asyncio.get_running_loop().call_later(at - monotonic(), self._look_at_the_clock)

    def _look_at_the_clock(self) -> None:
        """One timer for all: it goes off when the first lease would have ended, had it not been renewed since."""
        self._alarm = None
        for held in list(self._held.values()):
            if held.ends_at <= monotonic():
                held.lose(_TOO_LATE)
        if self._held:
            self._set_alarm(min(held.ends_at for held in self._held.values()))

    # -- in the background's thread ---------------------------------------------------------------------

    async def renew(self, store: Store) -> None:
        """Renew what is due. What cannot be renewed now is tried again at the next step; the clock sees to the rest."""
        by_root: defaultdict[str, list[Held]] = defaultdict(list)
        # A copy is made in one go; the other thread changes the original meanwhile.
        for held in self._held.copy().values():
            if held.renewed and self._is_due(held):
                by_root[held.root].append(held)
        renewals = (self._renew_below(store, root, of_root) for root, of_root in by_root.items())
        for outcome in await asyncio.gather(*renewals, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _is_due(self, held: Held) -> bool:
        """A third of its lease has passed, or will have by half of the time to the next step."""
        passed_s = held.lease_s - (held.ends_at - monotonic())
        return passed_s >= held.lease_s / 3 - self._every_s / 2

    async def _renew_below(self, store: Store, root: str, locks: list[Held]) -> None:
        timeout_s = min(self._every_s, store.settings.store.timeout_s)
        # Counted from before it is sent: the server's count begins later, so ours ends first.
        sent_at = monotonic()
        outcomes = await self._steps.renew(store, root, [held.renewal for held in locks], timeout_s)
        for held, kept in zip(locks, outcomes, strict=True):
            if kept:
                held.ends_at = sent_at + held.lease_s
            elif held.token in self._held:
                self._loop.call_soon_threadsafe(self._tell_lost, held)

    def _tell_lost(self, held: Held) -> None:
        # Released in the meantime, it is gone because we wanted it to be.
        if held.token in self._held:
            held.lose(_NOT_OURS)
