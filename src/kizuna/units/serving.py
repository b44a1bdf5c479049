"""Serving the requests that one pattern matches: take, claim, run, answer.

heard ──> is there a place? ──> claim, read ──> handler ──> answer written ──> place free
  │            │ no               │ lost
  │            └─> line           └─> found again when the claim would have ended
found ──> not if it is answered already
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kizuna.clock import milliseconds
from kizuna.errors import NotSent, OutcomeUnknown, PermissionDenied, StoreError
from kizuna.store.scanning.globs import matcher
from kizuna.units import short_cut
from kizuna.units.claims import AGAIN_AFTER_REFUSAL_S, AGAIN_AFTER_S, PASSES, Claims
from kizuna.units.executions import Execution
from kizuna.units.incoming import Reader
from kizuna.units.paths import ADDRESS_END, SHORT_MS
from kizuna.units.runners import Runners
from kizuna.units.tasks import Tasks
from kizuna.units.writing import parts_of

if TYPE_CHECKING:
    from kizuna.codecs import Codec
    from kizuna.coordination.handlers import Handler
    from kizuna.units.units import Units

log = logging.getLogger("kizuna.units")

# Names of requests that wait for a place; beyond it they are forgotten, and found by looking once there is one.
LONGEST_LINE = 10_000
# What is asked about in one go.
_AT_ONCE = 500


class Terms(NamedTuple):
    """How a unit serves."""

    pattern: str
    handler: Handler
    codec: Codec
    concurrency: int
    response_s: float
    error_s: float


class Serving:
    """What a server does, without when it begins and ends."""

    def __init__(self, units: Units, unit: str, terms: Terms) -> None:
        self.unit, self.pattern, self.handler, self.codec = unit, terms.pattern, terms.handler, terms.codec
        self.address = unit.encode() if terms.pattern == f"{units.root}/*/req/{unit}{ADDRESS_END}*" else None
        """Whose requests these are, if they are all that are sent to one unit."""
        self.largest_bytes = units.settings.largest_bytes
        self.counts = units.counts_of(unit)
        self.running: dict[bytes, Execution] = {}
        """By the key of the request: from the claim to the acknowledgement of the answer."""
        self.is_open = False
        self.is_stopped = False
        """No handler begins any more."""
        self._units, self.store = units, units.store
        self._most = terms.concurrency
        self._response_ms, self._error_ms = milliseconds(terms.response_s), milliseconds(terms.error_s)
        self._reader = Reader(units.root, unit)
        self.claims = Claims(
            units.store,
            units.reading,
            units.writing,
            self._reader,
            units.next_token(),
            units.settings.claim_s,
            on_claimed=self._begin,
            on_lost=self._lost,
            on_due=lambda keys: self._tasks.begin(self._find(keys)),
        )
        self._line: deque[tuple[bytes, float]] = deque()
        """Requests that wait for a place, and since when."""
        self._waiting: set[bytes] = set()
        """The same, to be found."""
        self._has_forgotten = False
        self._gathered: list[Execution] = []
        self._is_claiming_soon = False
        self._answered: dict[bytes, float] = {}
        self._answered_before: dict[bytes, float] = {}
        """What was answered lately, and when; it may be asked once more, while our claim is there."""
        self._outlived: dict[bytes, None] = {}
        """The last of those requests that outlive their answers, and of which we keep the claim as long."""
        self._turned_at = 0.0
        self._publishes = short_cut.can_be_taken(units.store)
        self._runners = Runners()
        self._free = asyncio.Event()
        self._tasks = Tasks()

    @cached_property
    def matches(self) -> Callable[[bytes], object]:
        """Whether a key is one of those that are served here."""
        return matcher([self.pattern])

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        """For handlers that are plain functions."""
        return ThreadPoolExecutor(self._most, "kizuna-unit")

    # -- requests come ----------------------------------------------------------------------------------

    def heard(self, keys: Iterable[bytes]) -> None:
        """Requests were set."""
        if not self.is_open:
            return
        if self._units.standstill.is_recent():
            self._tasks.begin(self._find(list(keys)))
            return
        self._serve(keys)

    async def found(self, keys: Sequence[bytes]) -> None:
        """These requests are there, and nothing else is known about them: serve those that nobody has answered.
        Raises StoreErrors."""
        new = [key for key in keys if key not in self.running and key not in self._waiting]
        for start in range(0, len(new), _AT_ONCE):
            read, began = map(self._reader.read, new[start : start + _AT_ONCE]), time.monotonic()
            is_open = await self.claims.open_among([request for request in read if request is not None])
            # Of what happened since, the look knows nothing.
            self._serve(key for key in is_open if key not in self.running and self._answered_at(key) < began)

    # -- the answer -------------------------------------------------------------------------------------

    def ended(self, execution: Execution, body: bytes, *, is_error: bool) -> None:
        """The handler has, with this outcome. It may have answered by hand before, and gone on."""
        execution.is_ended = True
        if execution.answer is None:
            self.answer(execution, body, is_error=is_error)
        elif execution.is_settled:
            self._leave(execution)

    def answer(self, execution: Execution, body: bytes, *, is_error: bool) -> None:
        """Write the answer, the only one."""
        if is_error:
            self.counts.failed += 1
            execution.answer = (self._reader.error(execution.request), body, self._error_ms)
        else:
            self.counts.served += 1
            execution.answer = (self._reader.response(execution.request), body, self._response_ms)
        execution.answered_at = now = time.monotonic()
        self._write(execution, now)

    def answered(self, execution: Execution) -> None:
        """It can be read."""
        now = execution.answered_at
        self.counts.handling.observe(now - execution.began)
        if now - self._turned_at >= self.claims.claim_s:
            # Whoever is in neither has no claim of ours any more.
            self._answered, self._answered_before, self._turned_at = {}, self._answered, now
        self._answered[execution.request.key] = now
        assert execution.answer is not None  # noqa: S101 - it was written
        if execution.request.is_short_lived and execution.answer[2] >= SHORT_MS:
            self._settle(execution)
        else:
            self._tasks.begin(self._keep_claim(execution, execution.answer[2]))

    def not_written(self, execution: Execution, error: BaseException) -> None:
        assert execution.answer is not None  # noqa: S101 - it is what was not written
        lives_s = execution.answer[2] / 1000
        is_in_time = time.monotonic() - execution.answered_at < lives_s and not self._units.is_closed
        if isinstance(error, (NotSent, OutcomeUnknown, *PASSES)) and is_in_time:
            # Repeating it is harmless: it is the same value.
            in_s = AGAIN_AFTER_REFUSAL_S if isinstance(error, PASSES) else AGAIN_AFTER_S
            self._tasks.begin(self._write_again(execution, in_s))
            return
        log.error("answer not written", extra={"path": execution.request.key.decode(), "error": str(error)})
        self._settle(execution, error)

    # -- the end ----------------------------------------------------------------------------------------

    async def drained(self) -> None:
        """Return when nothing that was claimed is left to be done."""
        while self.running:
            self._free.clear()
            await self._free.wait()

    async def aclose(self) -> None:
        """Stop what still runs: each is answered with an error, since nobody else would answer it. What cannot be
        written in the time of one command is not."""
        self.is_stopped = True
        for execution in self.running.values():
            if execution.task is not None:
                execution.task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.store.settings.store.timeout_s):
                await self.drained()
        self.claims.close()
        self._tasks.cancel()
        if "threads" in vars(self):
            self.threads.shutdown(wait=False)

    # -- inside -----------------------------------------------------------------------------------------

    def _serve(self, keys: Iterable[bytes]) -> None:
        if self.is_open:
            for key in keys:
                self._hear(key)
            self._claim_gathered()

    def _hear(self, key: bytes) -> None:
        if key in self._waiting:
            return
        if (execution := self.running.get(key)) is not None:
            execution.is_asked_again = execution.answer is not None
        elif len(self.running) < self._most:
            self._take(key)
        elif len(self._line) < LONGEST_LINE:
            self._line.append((key, time.monotonic()))
            self._waiting.add(key)
        else:
            self._has_forgotten = True

    def _take(self, key: bytes) -> None:
        """Give it a place; whoever calls sees to it that what has gathered is claimed."""
        request = self._reader.read(key)
        if request is None:
            return
        execution = self.running[key] = Execution(self, request)
        if key in self._answered or key in self._answered_before or key in self._outlived:
            self.claims.claim_once_more(execution)
        else:
            self._gathered.append(execution)

    def _claim_gathered(self) -> None:
        self._is_claiming_soon = False
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = []
        for part in parts_of(len(gathered)):
            self.claims.claim(gathered[part])

    def _begin(self, execution: Execution, claimed_at: float, value: bytes | None) -> None:
        if value is None:
            # It has ended in between, or is no string.
            self._leave(execution)
            return
        execution.raw = value
        execution.began = execution.claimed_at = claimed_at
        self._runners.run(execution)

    def _lost(self, execution: Execution) -> None:
        self.counts.claims_lost += 1
        self._leave(execution)

    def _leave(self, execution: Execution) -> None:
        """Its place is free."""
        self.running.pop(execution.request.key, None)
        if self._line:
            self._next_in_line()
        if execution.is_asked_again:
            self._serve([execution.request.key])
        if not self.running:
            self._free.set()
            if self._has_forgotten and self.is_open:
                self._has_forgotten = False
                self._units.sweep_soon()

    def _next_in_line(self) -> None:
        late = []
        while self._line and len(self.running) < self._most:
            key, since = self._line.popleft()
            self._waiting.discard(key)
            if not self.is_open:
                continue
            if time.monotonic() - since < self.claims.claim_s / 2:
                self._take(key)
            else:
                # By now somebody else may have claimed and answered it, and the claim have ended.
                late.append(key)
        if late:
            self._tasks.begin(self._find(late))
        if self._gathered and not self._is_claiming_soon:
            # Others, who are answered at the same time, are about to leave as well.
            self._is_claiming_soon = True
            asyncio.get_running_loop().call_soon(self._claim_gathered)

    async def _find(self, keys: list[bytes]) -> None:
        if not self.is_open:
            return
        try:
            await self.found(keys)
        except StoreError as error:
            log.warning("not looked again", extra={"requests": len(keys), "error": str(error)})
            for key in keys:
                self.claims.look_again(key, AGAIN_AFTER_S)

    def _write(self, execution: Execution, now: float) -> None:
        if execution.is_lost or execution.has_lapsed or now - execution.claimed_at >= self.claims.claim_s:
            # It was long, or we were held up: the claim may have ended, and be somebody else's.
            self._tasks.begin(self._write_if_ours(execution))
            return
        assert execution.answer is not None  # noqa: S101 - it is what we are called for
        key, body, ttl_ms = execution.answer
        alone = len(self.running) == 1
        if alone and self._publishes and len(body) <= short_cut.LARGEST_BYTES:
            self._publish_and_write(execution)
        else:
            self._units.writing.set(execution, key, body, ttl_ms, alone=alone)

    def _publish_and_write(self, execution: Execution) -> None:
        assert execution.answer is not None  # noqa: S101 - it is what we are called for
        key, body, ttl_ms = execution.answer

        def tell(replies: list[Any]) -> None:
            published, written = replies
            if isinstance(published, PermissionDenied):
                self._publishes = False
            if isinstance(written, StoreError):
                self.not_written(execution, written)
            else:
                self.answered(execution)

        self.store.post_all([("PUBLISH", key, body), ("SET", key, body, "PX", ttl_ms)], tell)

    async def _keep_claim(self, execution: Execution, answer_ms: int) -> None:
        if await self.claims.keep_beyond(execution.request, answer_ms):
            self._outlived[execution.request.key] = None
            if len(self._outlived) > LONGEST_LINE:
                del self._outlived[next(iter(self._outlived))]
        self._settle(execution)

    async def _write_if_ours(self, execution: Execution) -> None:
        """Make sure of the claim first; if another process has it, or had it and has answered, ours is dropped."""
        try:
            is_ours = not execution.is_lost and await self.claims.renew(execution, self.store)
            if is_ours:
                # Also if it was kept: then it may be the renewal in the background that has just taken it once more.
                is_ours = not await self.claims.is_answered(execution.request)
                execution.has_lapsed = False
        except StoreError as error:
            self.not_written(execution, error)
            return
        if is_ours:
            self._write(execution, time.monotonic())
            return
        self.counts.late += 1
        log.warning("answer dropped, another process took over", extra={"path": execution.request.key.decode()})
        self._settle(execution)

    async def _write_again(self, execution: Execution, in_s: float) -> None:
        await asyncio.sleep(in_s)
        self._write(execution, time.monotonic())

    def _answered_at(self, key: bytes) -> float:
        return self._answered.get(key) or self._answered_before.get(key, 0.0)

    def _settle(self, execution: Execution, error: BaseException | None = None) -> None:
        execution.settle(error)
        if execution.is_ended:
            self._leave(execution)
