"""Who holds tasks, and what can be done with a task in hand."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from kizuna.clock import milliseconds
from kizuna.coordination.queues.tasks import Delivery, State
from kizuna.errors import LeaseLost, NotSent, OutcomeUnknown, WrongValue
from kizuna.store.batching import MOST_BYTES
from kizuna.store.link import copy_of
from kizuna.store.scripts import MOST_ROWS, Script
from kizuna.store.wire import Argument, fail

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kizuna.codecs import Codec
    from kizuna.coordination.queues.group_keys import GroupKeys
    from kizuna.store.client import Store

finish_tasks = Script.load(__package__, "finish_tasks")
fail_task = Script.load(__package__, "fail_task")
release_task = Script.load(__package__, "release_task")
renew_consumer = Script.load(__package__, "renew_consumer")
note_progress = Script.load(__package__, "note_progress")

_LONGEST_TEXT = 4_000
_LOST = "its lease has ended, or it was cancelled"

_Row = dict[str, Argument]
_Finish = tuple[Delivery, "asyncio.Future[None]"]


class TaskHolder:
    """Settles tasks that are held under one lease. What is finished in one turn of the loop leaves in one call."""

    def __init__(self, store: Store, keys: GroupKeys, codec: Codec, id_: str, *, lease_s: float, leaves: bool) -> None:
        """`leaves`: this one is gone as soon as its one task is settled."""
        self.id, self.codec, self.lease_s = id_, codec, lease_s
        self._store, self._keys = store, keys
        self._held_key = keys.held(id_)
        self._leaves = int(leaves)
        self._result_ms = store.settings.kept.result_s * 1000
        self._rows: list[_Row] = []
        self._finishes: list[_Finish] = []
        self._bytes = 0
        self._sending: set[asyncio.Task[None]] = set()

    def finish(self, delivery: Delivery, result: Any = None) -> asyncio.Future[None]:
        """Keep the result. The future has LeaseLost if the task was no longer ours; it need not be awaited."""
        raw = b"" if result is None else self.codec.encode(result)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        result_ms = self._result_ms if delivery.result_ms is None else delivery.result_ms
        row: _Row = {"id": delivery.id, "number": delivery.number, "result": raw, "result_ms": result_ms}
        self._begun(delivery)
        if delivery.unsure:
            self._begin_finish([row], [(delivery, future)], again=1)
            return future
        if not self._rows:
            loop.call_soon(self._send_finishes)
        self._rows.append(row)
        self._finishes.append((delivery, future))
        self._bytes += len(raw)
        if len(self._rows) == MOST_ROWS or self._bytes >= MOST_BYTES:
            self._send_finishes()
        return future

    async def fail(
        self, delivery: Delivery, reason: str, *, retry: bool = True, retry_in_s: float | None = None
    ) -> State:
        queues, kept = self._store.settings.queues, self._store.settings.kept
        keys = self._keys
        first_ms, longest_ms, jitter = queues.retry_first_s * 1000, queues.retry_longest_s * 1000, _jitter()
        if retry_in_s is not None:
            first_ms = longest_ms = max(retry_in_s, 0) * 1000
            jitter = 1.0
        script = fail_task(
            self._store,
            held=self._held_key,
            consumers=keys.consumers,
            running=keys.running,
            info=keys.info_of + delivery.id,
            delayed=keys.delayed,
            dead=keys.dead,
            idle=keys.idle,
            consumer=self.id,
            leaves=self._leaves,
            id=delivery.id,
            number=delivery.number,
            reason=_bounded(reason),
            retry=int(retry),
            attempts=queues.attempts,
            first_ms=first_ms,
            longest_ms=longest_ms,
            jitter=jitter,
            dead_ms=kept.dead_task_s * 1000,
            finished=keys.finished,
            info_of=keys.info_of,
            rates_of=keys.rates_of,
            wake_of=keys.wake_of,
        )
        outcome, *_ = await self._settle(delivery, script)
        if outcome == b"lost":
            raise LeaseLost(delivery.id, _LOST)
        return "dead" if outcome == b"dead" else "delayed"

    async def release(self, delivery: Delivery) -> None:
        keys = self._keys
        script = release_task(
            self._store,
            held=self._held_key,
            consumers=keys.consumers,
            running=keys.running,
            info=keys.info_of + delivery.id,
            **keys.lists,
            idle=keys.idle,
            consumer=self.id,
            leaves=self._leaves,
            id=delivery.id,
            number=delivery.number,
            wake_of=keys.wake_of,
        )
        if await self._settle(delivery, script) == b"lost":
            raise LeaseLost(delivery.id, _LOST)

    async def progress(self, delivery: Delivery, fraction: float, note: str = "") -> None:
        if not 0 <= fraction <= 1:
            raise WrongValue("progress", f"{fraction}", "a number from 0 to 1")
        info = self._keys.info_of + delivery.id
        names: dict[str, Any] = {
            "id": delivery.id,
            "number": delivery.number,
            "fraction": float(fraction),
            "note": _bounded(note),
        }
        if await note_progress(self._store, held=self._held_key, info=info, **names) == b"lost":
            raise LeaseLost(delivery.id, _LOST)

    async def renew(self) -> None:
        if await self.renew_with(self._store) is None:
            raise LeaseLost(self.id, "its lease has ended, and its task was handed to others")

    async def renew_with(self, store: Store) -> int | None:
        """How many tasks we have on the server; None if our lease has ended, and all were taken back."""
        lease_ms = milliseconds(self.lease_s)
        outcome, number = await renew_consumer(
            store, consumers=self._keys.consumers, held=self._held_key, consumer=self.id, lease_ms=lease_ms
        )
        return int(number) if outcome == b"renewed" else None

    def delivery_of(self, id_: str, number: int) -> Delivery:
        """A task of which only this is known: enough to settle it."""
        return Delivery(self, number, [id_.encode(), b"", b"", 0, 0, b"", 0, 0])

    async def settled(self) -> None:
        """Wait until everything that was finished is answered."""
        self._send_finishes()
        while self._sending:
            await asyncio.wait(self._sending)

    # -- inside -----------------------------------------------------------------------------------------

    def _begun(self, delivery: Delivery) -> None:
        """It is being settled from now on."""

    def _ended(self, delivery: Delivery, *, settled: bool) -> None:
        """We know what became of it; or not, and it may still be ours."""

    async def _settle(self, delivery: Delivery, script: Coroutine[Any, Any, Any]) -> Any:
        self._begun(delivery)
        try:
            outcome = await script
        except BaseException:
            self._ended(delivery, settled=False)
            raise
        self._ended(delivery, settled=True)
        return outcome

    def _send_finishes(self) -> None:
        if self._rows:
            rows, finishes = self._rows, self._finishes
            self._rows, self._finishes, self._bytes = [], [], 0
            self._begin_finish(rows, finishes, again=0)

    def _begin_finish(self, rows: list[_Row], finishes: list[_Finish], *, again: int) -> None:
        task = asyncio.get_running_loop().create_task(self._finish(rows, finishes, again))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _finish(self, rows: list[_Row], finishes: list[_Finish], again: int) -> None:
        try:
            outcomes = await self._finish_rows(rows, again)
        except Exception as error:
            # Whatever it is, it is theirs who wait: nobody else would hear of it.
            for delivery, future in finishes:
                delivery.unsure = delivery.unsure or isinstance(error, OutcomeUnknown)
                self._ended(delivery, settled=False)
                if not future.done():
                    fail(future, copy_of(error))
            return
        for (delivery, future), outcome in zip(finishes, outcomes, strict=True):
            self._ended(delivery, settled=True)
            if future.done():
                continue
            if outcome == b"done":
                future.set_result(None)
            else:
                fail(future, LeaseLost(delivery.id, _LOST))

    async def _finish_rows(self, rows: list[_Row], again: int) -> list[Any]:
        """Once more if the connection broke before the answer came: a result that is there is our own."""
        deadline = self._store.deadline(None)
        try:
            return await self._send_rows(rows, again=again)
        except OutcomeUnknown as unknown:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise
            try:
                outcomes = await self._send_rows(rows, again=1, timeout_s=left_s)
            except NotSent:
                # Of the first one it is still not known.
                raise unknown from None
            # Without a result that is kept, nobody can tell any more whether it was us.
            if any(outcome == b"lost" and row["result_ms"] == 0 for row, outcome in zip(rows, outcomes, strict=True)):
                raise unknown  # noqa: TRY201 - the second attempt is no news
            return outcomes

    async def _send_rows(self, rows: list[_Row], *, again: int, timeout_s: float | None = None) -> list[Any]:
        keys = self._keys
        return await finish_tasks.rows(
            self._store,
            rows,
            timeout_s=timeout_s,
            held=self._held_key,
            consumers=keys.consumers,
            running=keys.running,
            consumer=self.id,
            leaves=self._leaves,
            again=again,
            finished=keys.finished,
            info_of=keys.info_of,
            result_of=keys.result_of,
            rates_of=keys.rates_of,
        )


def _bounded(text: str) -> bytes:
    """For people to read: whatever it is made of, and not a whole document."""
    return text[:_LONGEST_TEXT].encode(errors="backslashreplace")


def _jitter() -> float:
    """So that tasks which failed together are not tried again together."""
    return random.uniform(0.75, 1.25)  # noqa: S311 - not a secret
