"""Consumers: they take tasks under a lease that is kept for them in the background.

    take ──> hand_out_tasks ── some ──> ready ──> held ──> settling ──> gone
               ^    │ none                          └──────────┴──> lost: cancelled, or our lease had ended
               │    v
              idle until woken: by a push, by the time of the next delayed task, or after a second or two

What the server says we hold is compared with what we know whenever there is reason to doubt it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Self

from kizuna.coordination.queues.holding import TaskHolder
from kizuna.coordination.queues.taking import LOOK_ANYWAY_S, Handed, Shares, Taking, give_back
from kizuna.coordination.queues.tasks import Delivery
from kizuna.errors import KizunaError, LeaseLost, StoreError, Unreachable, WrongValue
from kizuna.store.events.feeds import Feed, Message

if TYPE_CHECKING:
    from kizuna.codecs import Codec
    from kizuna.coordination.background import Background, Repetition
    from kizuna.coordination.processes.membership import Registration
    from kizuna.coordination.queues.group_keys import GroupKeys
    from kizuna.store.client import Store

log = logging.getLogger("kizuna.coordination")

RENEW_EVERY_S = 2.0
"""Often, so that nearly all of a long lease is left when something holds the interpreter, and with it the renewal."""


class Consumer(TaskHolder):
    """Takes tasks of one group; made by `Queue.consumer`, and open within `async with`.

    Its lease covers all tasks that it holds, however many and however long they run, and is renewed by a thread of
    its own. When it is left, what it still holds goes back to the queue.
    """

    def __init__(
        self,
        store: Store,
        background: Background,
        join: Callable[[], Awaitable[Registration | None]],
        keys: GroupKeys,
        codec: Codec,
        id_: str,
        *,
        lease_s: float,
        shares: Shares,
    ) -> None:
        super().__init__(store, keys, codec, id_, lease_s=lease_s, leaves=False)
        self.on_lost: Callable[[Delivery], object] | None = None
        """Called for each task that we hold no longer, because it was cancelled or our lease has ended."""
        self._background, self._join = background, join
        self._taking = Taking(store, keys, self, shares, stays=True)
        self._held: dict[str, Delivery] = {}
        self._settling: dict[str, Delivery] = {}
        self._ready: deque[Delivery] = deque()
        self._asked_times = 0
        self._last_number = 0
        self._is_unsure = False
        self._one_at_a_time = asyncio.Lock()
        self._woken = asyncio.Event()
        self._asking: set[asyncio.Task[Handed | None]] = set()
        self._looking: set[asyncio.Task[None]] = set()
        self._closed = True
        self._stack = AsyncExitStack()
        self._renewal: Repetition
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Self:
        self._loop, self._closed = asyncio.get_running_loop(), False
        try:
            # Entered first and left last: as long as we hold tasks, others have to know whether we live.
            if registration := await self._join():
                self._stack.push_async_callback(registration.leave)
            wake = self._keys.wake_of + self.id
            feed = await self._stack.enter_async_context(self._store.events.listen(wake))
            self._begin(self._hear(feed))
            every_s = min(self.lease_s / 3, RENEW_EVERY_S)
            self._renewal = await self._background.repeat(self._renew_step, every_s=every_s, name=f"renew {self.id}")
            self._stack.callback(self._renewal.stop)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        try:
            if self._asking:
                await asyncio.wait(self._asking)
            await self.settled()
            await give_back(self._store, self._keys, self.id, "left")
        except StoreError as error:
            # Whatever is left comes back when the lease ends.
            log.warning("consumer left without goodbye", extra={"consumer": self.id, "error": str(error)})
        finally:
            await self._end()

    @property
    def held(self) -> int:
        """How many tasks we have."""
        return len(self._held)

    async def take(self, most: int = 1, *, wait_s: float = 5.0) -> list[Delivery]:
        """Up to so many tasks, at least one of them, as soon as there is any; none after `wait_s`."""
        if self._closed:
            raise Unreachable("this consumer is closed", self._keys.group, "make another one")
        if most < 1:
            raise WrongValue("most", f"{most}", "1 or more")
        deadline = self._loop.time() + wait_s
        while True:
            self._woken.clear()
            handed = await self._ask_shielded(most, waits=wait_s > 0)
            if self._ready:
                return self._taken(most)
            if handed is None:
                continue
            left_s = deadline - self._loop.time()
            if left_s <= 0 or not await self._wait(handed, left_s):
                return await self._leave_empty(most) if wait_s > 0 else []

    # -- inside: taking -----------------------------------------------------------------------------------

    async def _ask_shielded(self, most: int, *, waits: bool) -> Handed | None:
        """So that a task which is handed out while we are cancelled is not forgotten: the next one gets it."""
        asking = self._loop.create_task(self._ask(most, waits=waits))
        self._asking.add(asking)
        asking.add_done_callback(self._asked)
        return await asyncio.shield(asking)

    def _asked(self, asking: asyncio.Task[Handed | None]) -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # who was cancelled does not hear of it, and need not

    async def _ask(self, most: int, *, waits: bool) -> Handed | None:
        """None if it is worth asking again at once."""
        async with self._one_at_a_time:
            if self._ready:
                return None
            self._asked_times += 1
            try:
                handed = await self._taking.ask(most, waits=waits)
            except StoreError as error:
                # We may have tasks that we do not know of.
                self._is_unsure = self._is_unsure or error.outcome == "unknown"
                raise
            self._last_number = handed.number
            for delivery in handed.deliveries:
                self._held[delivery.id] = delivery
            self._ready.extend(handed.deliveries)
        if self._is_unsure:
            await self._compare()
        return None if await self._taking.tidy(handed) or handed.word == b"again" else handed

    def _taken(self, most: int) -> list[Delivery]:
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    async def _wait(self, handed: Handed, left_s: float) -> bool:
        """False when there is no time left."""
        pause_s = random.uniform(*LOOK_ANYWAY_S)  # noqa: S311 - not a secret
        if handed.due_ms > 0:
            pause_s = min(pause_s, handed.due_ms / 1000)
        try:
            async with asyncio.timeout(min(pause_s, left_s)):
                await self._woken.wait()
        except TimeoutError:
            return pause_s < left_s
        except asyncio.CancelledError:
            # So that others are woken instead of us.
            self._store.call("ZREM", self._keys.idle, self.id)
            raise
        return True

    async def _leave_empty(self, most: int) -> list[Delivery]:
        if await self._taking.no_longer_waits():
            await self._ask_shielded(most, waits=False)
        return self._taken(most)

    # -- inside: keeping ----------------------------------------------------------------------------------

    def _begun(self, delivery: Delivery) -> None:
        if self._held.get(delivery.id) is delivery:
            del self._held[delivery.id]
        self._settling[delivery.id] = delivery

    def _ended(self, delivery: Delivery, *, settled: bool) -> None:
        if self._settling.get(delivery.id) is delivery:
            del self._settling[delivery.id]
            if not settled:
                # It is still ours, as far as we know; whoever tried may try again.
                self._held[delivery.id] = delivery

    async def _renew_step(self, store: Store) -> None:
        """In the background's thread."""
        number = await self.renew_with(store)
        self._loop.call_soon_threadsafe(self._renewed, number or 0)

    def _renewed(self, number: int) -> None:
        """What is settled leaves our list first, and what is handed out comes to it last: fewer on the server means
        that something is gone, and more, for long, that we were handed what we do not know of."""
        held = len(self._held)
        if number < held or number > held + len(self._settling):
            self._begin(self._compare())

    async def _hear(self, feed: Feed[Message]) -> None:
        while True:
            try:
                event = await feed.next()
            except KizunaError as error:
                # We still look now and then by ourselves.
                log.warning("consumer hears nothing", extra={"consumer": self.id, "error": str(error)})
                await asyncio.sleep(LOOK_ANYWAY_S[0])
                continue
            self._woken.set()
            if not isinstance(event, Message) or event.payload == b"gone":
                self._begin(self._compare())

    async def _compare(self) -> None:
        """Find out which of our tasks are no longer ours, and hand back what we have without knowing."""
        before = list(self._held.values())
        asked_times, answered_up_to = self._asked_times, self._last_number
        is_asking = self._one_at_a_time.locked()
        try:
            there = _numbers(await self._store.call("HGETALL", self._held_key))
            for delivery in before:
                if there.get(delivery.id) != delivery.number and self._held.get(delivery.id) is delivery:
                    self._lose(delivery)
            # While we ask, an answer with tasks may be on its way; but not with any from before the last answer.
            if not is_asking and asked_times == self._asked_times:
                answered_up_to = sys.maxsize
            await self._release_strangers({id_: n for id_, n in there.items() if n <= answered_up_to})
            self._is_unsure = False
        except StoreError as error:
            # There is another chance with the next renewal.
            log.warning("consumer could not compare", extra={"consumer": self.id, "error": str(error)})

    def _lose(self, delivery: Delivery) -> None:
        del self._held[delivery.id]
        if delivery in self._ready:
            self._ready.remove(delivery)
        elif self.on_lost is not None and not delivery.unsure:
            try:
                self.on_lost(delivery)
            except Exception:
                log.exception("on_lost failed", extra={"consumer": self.id, "task": delivery.id})

    async def _release_strangers(self, there: dict[str, int]) -> None:
        """What was handed out to us, and the answer was lost: nobody would ever run it."""
        known = self._held.keys() | self._settling.keys()
        for id_, number in there.items():
            if id_ not in known:
                with suppress(LeaseLost):
                    await self.release(self.delivery_of(id_, number))

    # -- inside: ending -----------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name=f"kizuna consumer {self.id}")
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _end(self) -> None:
        for task in list(self._looking):
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)
        await self._stack.aclose()


def _numbers(raw: dict[bytes, bytes]) -> dict[str, int]:
    return {id_.decode(): int(number) for id_, number in raw.items()}
