"""Runs the tasks of one or several groups with Python functions.

    worker = Worker(k, "images", concurrency=16)

    @worker.handler("resize")
    async def resize(payload): ...

    async with running(worker): ...

A worker takes a task when it has a place for it, and never holds more than `concurrency + prefetch`. Everything it
holds is under a lease that a background thread renews: a handler may take as long as it likes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kizuna.coordination.queue_names import DEFAULT_GROUP
from kizuna.coordination.worker.executions import PASSING, Counts, Execution, Ways
from kizuna.coordination.worker.handlers import Handlers
from kizuna.errors import KizunaError, WrongValue
from kizuna.metrics import Measure
from kizuna.service import running

if TYPE_CHECKING:
    from kizuna.coordination.processes import Processes
    from kizuna.coordination.queues import Queue, Queues
    from kizuna.coordination.queues.consumers import Consumer
    from kizuna.coordination.queues.tasks import Delivery

log = logging.getLogger("kizuna.worker")

Function = TypeVar("Function", bound=Callable[..., Any])

# How long one call waits for a task. The server hears of us at least so often.
_WAIT_S = 5.0
_TAKE_AGAIN_S = 1.0
# Of the two seconds that a service has to stop at once, what handlers get to let go.
_LET_GO_WITHIN_S = 1.0

_COUNTED = {
    "taken": "Tasks that were handed to this worker.",
    "done": "Tasks whose result was kept.",
    "failed": "Tasks whose handler failed.",
    "timed_out": "Tasks that were not done in time.",
    "lost": "Tasks that were taken from this worker, or cancelled.",
    "released": "Tasks that were handed back.",
}


class Parts(Protocol):
    """What a worker needs of a connected system; `Kizuna` is one."""

    @property
    def processes(self) -> Processes: ...
    @property
    def queues(self) -> Queues: ...


class Source:
    """One queue of the worker, and what was counted for it."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.counts = queue, Counts()
        self.consumer: Consumer


class Worker:
    """A Service: when it is told to stop, it takes no more, and what runs gets the service's time to end. What has not
    ended by then is let go, and runs elsewhere at once, without counting as a crash."""

    def __init__(
        self,
        k: Parts,
        *queues: Queue | str,
        concurrency: int = 16,
        prefetch: int = 0,
        timeout_s: float | None = None,
        lease_s: float | None = None,
    ) -> None:
        """`queues` are groups by name, or queues with a codec of their own; the default group if none is named.

        `prefetch` is how many more to hold than can run. None by default: which task is due, and who is free for it,
        is then decided as late as possible. `timeout_s` is for tasks that have none of their own.
        """
        if concurrency < 1 or prefetch < 0:
            raise WrongValue("concurrency and prefetch", f"{concurrency} and {prefetch}", "1 or more, and 0 or more")
        self._k = k
        groups = queues or (DEFAULT_GROUP,)
        self._sources = [Source(k.queues.group(queue) if isinstance(queue, str) else queue) for queue in groups]
        self._concurrency, self._prefetch = concurrency, prefetch
        self._timeout_s, self._lease_s = timeout_s, lease_s
        self._handlers = Handlers()
        self._executions: dict[Delivery, Execution] = {}
        """All tasks that are with us, until they are settled."""
        self._waiting: deque[Execution] = deque()
        """Those of them that have no place yet."""
        self._busy = 0
        """Places in use: also by threads whose task was settled without them."""
        self._reserved = 0
        # Half of them, so that the server hands out one half while the other one runs.
        self._at_once = max(1, (concurrency + prefetch) // 2)
        self._draining = False
        self._changed = asyncio.Event()
        self._ways: Ways

    def handler(self, name: str = "") -> Callable[[Function], Function]:
        """Have a function run the tasks of this name: those without one by default, `*` for all that have no other.

        It is called with the payload, and with the delivery if it has a parameter `delivery`. What it returns is the
        result. Plain functions run in threads. Whatever it raises is a failed attempt; GiveUp is the last one.
        """

        def add(function: Function) -> Function:
            self._handlers.add(name, function)
            return function

        return add

    @property
    def counts(self) -> dict[str, Counts]:
        """What was counted, by group."""
        return {source.queue.group: source.counts for source in self._sources}

    def measures(self) -> Iterator[Measure]:
        """A source for `kizuna.metrics`."""
        for name, help_ in _COUNTED.items():
            for group, counts in self.counts.items():
                yield Measure("counter", f"kizuna_worker_{name}_total", help_, getattr(counts, name), {"group": group})
        for group, counts in self.counts.items():
            yield Measure("gauge", "kizuna_worker_running", "Tasks that run now.", counts.running, {"group": group})

    # -- the service --------------------------------------------------------------------------------------

    async def run(self, started: asyncio.Event) -> None:
        if not self._handlers:
            raise WrongValue("the handlers of a worker", "none", "a function below @worker.handler()")
        threads = ThreadPoolExecutor(self._concurrency, "kizuna-worker")
        self._ways = Ways(self._handlers, self._timeout_s, threads, self._on_left)
        groups = [source.queue.group for source in self._sources]
        try:
            # Entered first and left last: as long as we hold tasks, others have to know that we live.
            async with running(self._k.processes.membership("worker", {"groups": ", ".join(groups)})):
                await self._work(started)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    async def _work(self, started: asyncio.Event) -> None:
        async with AsyncExitStack() as consumers:
            for source in self._sources:
                source.consumer = await consumers.enter_async_context(source.queue.consumer(lease_s=self._lease_s))
                source.consumer.on_lost = self._on_lost
            started.set()
            await self._feed_all()

    async def _feed_all(self) -> None:
        """Until we are told to stop, or one queue cannot be worked on."""
        self._draining = False
        feeders = [asyncio.create_task(self._feed(source)) for source in self._sources]
        try:
            ended, _ = await asyncio.wait(feeders, return_when=asyncio.FIRST_COMPLETED)
            ended.pop().result()
        except asyncio.CancelledError:
            await self._drain()
            raise
        finally:
            for feeder in feeders:
                feeder.cancel()
            await asyncio.gather(*feeders, return_exceptions=True)
            await self._let_go()

    async def _drain(self) -> None:
        """What runs may end; what waits for a place is for others, and so is what a feeder still comes back with."""
        self._draining = True
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        await self._release([execution for execution in waiting if execution.take_away()])
        while self._executions or self._busy:
            await self._change()

    async def _let_go(self) -> None:
        """Whatever is still with us is for others to do, now."""
        self._waiting.clear()
        executions = list(self._executions.values())
        taken_away = [execution for execution in executions if execution.take_away()]
        tasks = [execution.task for execution in executions if execution.task is not None]
        if tasks:
            _, unending = await asyncio.wait(tasks, timeout=_LET_GO_WITHIN_S)
            for task in unending:
                # Those whose end could not be told yet; and handlers that would not end.
                task.cancel()
        await self._release(taken_away)

    async def _release(self, executions: Iterable[Execution]) -> None:
        await asyncio.gather(*[self._release_one(execution) for execution in executions])

    async def _release_one(self, execution: Execution) -> None:
        self._forget(execution)
        try:
            await execution.delivery.release()
            execution.counts.released += 1
        except KizunaError as error:
            # Then it is given back when our lease ends.
            log.warning("task not released", extra={"task": execution.delivery.id, "error": str(error)})

    # -- taking -------------------------------------------------------------------------------------------

    async def _feed(self, source: Source) -> None:
        while not self._draining:
            if self._room < 1:
                await self._change()
                continue
            try:
                deliveries = await self._take(source)
            except PASSING as error:
                log.warning("no tasks taken", extra={"group": source.queue.group, "error": str(error)})
                await asyncio.sleep(_TAKE_AGAIN_S)
                continue
            await self._accept(source, deliveries)

    async def _take(self, source: Source) -> list[Delivery]:
        if len(self._sources) == 1:
            # While it waits, nobody else fills the room.
            return await source.consumer.take(most=min(self._room, self._at_once), wait_s=_WAIT_S)
        return await self._look(source) or await source.consumer.take(most=1, wait_s=_WAIT_S)

    async def _look(self, source: Source) -> list[Delivery]:
        """Of several queues, each may have all the room, for as long as an answer takes."""
        reserved = min(self._room, self._at_once)
        self._reserved += reserved
        try:
            return await source.consumer.take(most=reserved, wait_s=0)
        finally:
            self._reserved -= reserved
            self._changed.set()

    async def _accept(self, source: Source, deliveries: list[Delivery]) -> None:
        source.counts.taken += len(deliveries)
        room = 0 if self._draining else max(self._room, 0)
        for delivery in deliveries[:room]:
            self._begin_or_keep(Execution(self._ways, source.consumer, delivery, source.counts))
        # A queue was waited for while another one filled the room, or we were told to stop.
        await self._release(
            [Execution(self._ways, source.consumer, delivery, source.counts) for delivery in deliveries[room:]]
        )

    # -- places -------------------------------------------------------------------------------------------

    @property
    def _room(self) -> int:
        """How many more tasks we may have."""
        return self._concurrency + self._prefetch - self._busy - len(self._waiting) - self._reserved

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _begin_or_keep(self, execution: Execution) -> None:
        self._executions[execution.delivery] = execution
        if self._busy < self._concurrency:
            self._begin(execution)
        else:
            self._waiting.append(execution)

    def _begin(self, execution: Execution) -> None:
        self._busy += 1
        execution.begin(self._forget)

    def _on_left(self) -> None:
        """A place is free."""
        self._busy -= 1
        while self._waiting and self._busy < self._concurrency:
            self._begin(self._waiting.popleft())
        self._changed.set()

    def _forget(self, execution: Execution) -> None:
        self._executions.pop(execution.delivery, None)
        self._changed.set()

    def _on_lost(self, delivery: Delivery) -> None:
        """Somebody else has the task, or it was cancelled."""
        execution = self._executions.get(delivery)
        if execution is not None and execution.take_away():
            execution.counts.lost += 1
            log.warning("task lost", extra={"task": delivery.id, "reason": "it was cancelled, or its lease has ended"})
