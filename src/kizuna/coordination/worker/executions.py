"""One task with a worker: its handler is called, and what comes of it is told to the queue.

waiting ──> running ──> settling ──> settled
   └───────────┴──> taken away: lost to others, or let go by us; then nothing is said of it
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kizuna.coordination.handlers import Failed, Handler, reason_of
from kizuna.coordination.worker.handlers import DeliveryInThread, GiveUp, Handlers, RetryIn
from kizuna.errors import (
    LeaseLost,
    NotPrimary,
    OutcomeUnknown,
    OutOfMemory,
    Overloaded,
    StorageFull,
    StoreError,
    Undecodable,
    Unreachable,
)

if TYPE_CHECKING:
    from kizuna.coordination.queues.consumers import Consumer
    from kizuna.coordination.queues.tasks import Delivery

log = logging.getLogger("kizuna.worker")

PASSING = (Unreachable, Overloaded, OutcomeUnknown, NotPrimary, OutOfMemory, StorageFull)
"""What passes without our doing; about anything else, a person has to do something."""

_SETTLE_AGAIN_S = 1.0


class Counts:
    """What a worker has counted for one group since it was made; `running` is how many run now."""

    __slots__ = ("done", "failed", "lost", "released", "running", "taken", "timed_out")

    def __init__(self) -> None:
        self.taken = self.done = self.failed = self.timed_out = self.lost = self.released = self.running = 0


class Outcome(NamedTuple):
    """What is said of a task when its handler is through with it."""

    word: Literal["done", "failed", "timed_out"]
    result: Any = None
    reason: str = ""
    retry: bool = True
    retry_in_s: float | None = None
    """None: when the settings say so."""


class Ways(NamedTuple):
    """How all tasks of a worker are run."""

    handlers: Handlers
    timeout_s: float | None
    threads: Executor
    on_left: Callable[[], None]
    """Told when a place is free for another."""


class Execution:
    __slots__ = ("_ways", "consumer", "counts", "delivery", "phase", "task", "thread")

    def __init__(self, ways: Ways, consumer: Consumer, delivery: Delivery, counts: Counts) -> None:
        self._ways = ways
        self.consumer, self.delivery, self.counts = consumer, delivery, counts
        self.phase: Literal["waiting", "running", "settling", "settled", "taken away"] = "waiting"
        self.task: asyncio.Task[None] | None = None
        self.thread: asyncio.Future[Any] | None = None
        """A plain function at work: it cannot be stopped, and may go on after its task was settled."""

    def begin(self, on_end: Callable[[Execution], None]) -> None:
        self.counts.running += 1
        self.task = asyncio.get_running_loop().create_task(self._run())
        self.task.add_done_callback(lambda _: on_end(self))

    def take_away(self) -> bool:
        """Stop the handler, if it can be stopped, and say nothing of what it does from now on.

        False if there is something said already: then the answer to that decides.
        """
        if self.phase in ("waiting", "running"):
            # A task that is cancelled before its first step would never come to leave its place.
            if self.phase == "running" and self.task is not None:
                self.task.cancel()
            self.phase = "taken away"
            return True
        return False

    @property
    def _is_taken_away(self) -> bool:
        return self.phase == "taken away"

    async def _run(self) -> None:
        try:
            outcome = await self._outcome()
        finally:
            self._leave()
        if outcome is not None:
            await self._settle(outcome)

    async def _outcome(self) -> Outcome | None:
        """None if it was taken away."""
        if self._is_taken_away:
            return None
        self.phase = "running"
        try:
            outcome = await self._outcome_of_handler()
        except asyncio.CancelledError:
            outcome = Outcome("failed", reason="CancelledError: something that the handler awaited was cancelled")
        return None if self._is_taken_away else outcome

    async def _outcome_of_handler(self) -> Outcome:
        timeout_s = self.delivery.timeout_s or self._ways.timeout_s
        limit: asyncio.Timeout | None = None
        try:
            if timeout_s is None:
                # A limit of None would limit nothing, and short tasks would feel its cost.
                return Outcome("done", await self._call())
            async with asyncio.timeout(timeout_s) as limit:
                return Outcome("done", await self._call())
        except (GiveUp, Undecodable) as error:
            return Outcome("failed", reason=str(error), retry=False)
        except RetryIn as error:
            return Outcome("failed", reason=str(error), retry_in_s=error.seconds)
        except Failed as error:
            return Outcome("failed", reason=str(error))
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            # All of them: a task whose handler ended without a word would run for ever.
            if limit is not None and limit.expired() and isinstance(error, TimeoutError):
                return Outcome("timed_out", reason=f"not done within {timeout_s:g}s")
            return Outcome("failed", reason=reason_of(error))

    async def _call(self) -> Any:
        handler = self._ways.handlers.find(self.delivery.name)
        payload = self.delivery.payload
        if not handler.is_async:
            return await self._call_in_thread(handler, payload)
        if handler.takes_extra:
            return await handler.function(payload, delivery=self.delivery)
        return await handler.function(payload)

    async def _call_in_thread(self, handler: Handler, payload: Any) -> Any:
        loop = asyncio.get_running_loop()
        asked = {"delivery": DeliveryInThread(self.delivery, loop)} if handler.takes_extra else {}
        call = partial(contextvars.copy_context().run, handler.function, payload, **asked)
        self.thread = loop.run_in_executor(self._ways.threads, call)
        # Shielded, so that the thread is known to go on when we no longer wait for it.
        return await asyncio.shield(self.thread)

    def _leave(self) -> None:
        if self.thread is not None and not self.thread.done():
            self.thread.add_done_callback(lambda _: self._left())
        else:
            self._left()

    def _left(self) -> None:
        self.counts.running -= 1
        self._ways.on_left()

    async def _settle(self, outcome: Outcome) -> None:
        self.phase = "settling"
        while self.phase == "settling":
            try:
                await self._say(outcome)
                self.phase = "settled"
            except LeaseLost as error:
                self.phase = "taken away"
                self.counts.lost += 1
                log.warning("task lost", extra={"task": self.delivery.id, "reason": error.reason})
            except PASSING as error:
                # Its token makes a repetition harmless; and if the task is another's by now, we are told.
                log.warning("task not settled yet", extra={"task": self.delivery.id, "error": str(error)})
                await asyncio.sleep(_SETTLE_AGAIN_S)
            except StoreError as error:
                log.error("task not settled", extra={"task": self.delivery.id, "error": str(error)})  # noqa: TRY400
                if outcome.word != "done":
                    # The consumer finds that it has a task which nobody runs, and hands it back.
                    return
                outcome = Outcome("failed", reason=f"its result cannot be kept: {error}", retry=False)

    async def _say(self, outcome: Outcome) -> None:
        if outcome.word == "done":
            try:
                finished = self.consumer.finish(self.delivery, outcome.result)
            except Exception as error:  # whatever a codec raises for what it cannot encode
                outcome = Outcome("failed", reason=f"its result cannot be kept: {error}", retry=False)
            else:
                await finished
                self.counts.done += 1
                return
        _, _, reason, retry, retry_in_s = outcome
        state = await self.consumer.fail(self.delivery, reason, retry=retry, retry_in_s=retry_in_s)
        if outcome.word == "timed_out":
            self.counts.timed_out += 1
        else:
            self.counts.failed += 1
        log.info("task failed", extra={"task": self.delivery.id, "reason": outcome.reason, "now": state})
