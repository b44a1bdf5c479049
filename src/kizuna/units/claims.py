"""Claims on requests: SET NX below the `keep` of the serving unit, so that of several processes one works on each.

    claim, read ──> ours: begin
                 └─> somebody else's: look again when it would have ended; if there is no answer then, claim

Whoever has a claim renews it while it works. A claim that is there says that somebody does; one that outlives its
request says, where the answer does not, that it was served.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kizuna.clock import milliseconds
from kizuna.errors import NotPrimary, NotSent, OutcomeUnknown, OutOfMemory, StorageFull, StoreError
from kizuna.store.packing import HOLE, pack, template
from kizuna.store.scripts import Script
from kizuna.units.reading import without_errors
from kizuna.units.tasks import Tasks

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.wire import Command
    from kizuna.units.executions import Execution
    from kizuna.units.incoming import Incoming, Reader
    from kizuna.units.reading import Reading
    from kizuna.units.writing import Writing

log = logging.getLogger("kizuna.units")

claim_again = Script.load(__package__, "claim_again")

AGAIN_AFTER_S = 0.05
PASSES = (OutOfMemory, StorageFull, NotPrimary)
"""What the server refuses now, and may well take in a moment."""
AGAIN_AFTER_REFUSAL_S = 0.5
# Those that are due within a moment are looked at together.
_TOGETHER_S = 0.05
# What PTTL says of a key that is not there.
_GONE = -2
_WITHOUT_END = -1
# A request without an end would be found, and served, for ever: its claim is kept that long.
_WITHOUT_END_MS = 86_400_000

OnClaimed = Callable[["Execution", float, bytes | None], None]
"""With when it was claimed, and the value of the request, None if it is gone."""
OnLost = Callable[["Execution"], None]


class Claims:
    """Of one server, `token` is whose they are. `on_claimed` and `on_lost` are told how each claim came out, and
    `on_due` which requests, claimed by others before, have to be looked at again."""

    def __init__(
        self,
        store: Store,
        reading: Reading,
        writing: Writing,
        reader: Reader,
        token: str,
        claim_s: float,
        *,
        on_claimed: OnClaimed,
        on_lost: OnLost,
        on_due: Callable[[list[bytes]], None],
    ) -> None:
        self.claim_s = claim_s
        self._store, self._reading, self._writing = store, reading, writing
        self._reader, self._token = reader, token
        self._ms = milliseconds(claim_s)
        self._claim = template("SET", HOLE, token, "NX", "PX", self._ms)
        self._on_claimed, self._on_lost, self._on_due = on_claimed, on_lost, on_due
        self._others: list[tuple[float, bytes]] = []
        """When to look again at requests that somebody else has claimed: a heap."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()

    def claim(self, executions: list[Execution]) -> None:
        """Try for all of them, and read those requests meanwhile."""
        requests = [execution.request for execution in executions]
        keys = [request.key for request in requests]
        claim = self._claim
        commands: list[Command] = [("SET", request.claim, self._token, "NX", "PX", self._ms) for request in requests]
        packed = [claim % (len(request.claim), request.claim) for request in requests]
        reads = self._reading.commands_for(keys)
        packed += map(pack, reads)
        now, number = time.monotonic(), len(keys)

        def tell(replies: list[Any]) -> None:
            values = self._reading.values_in(replies[number:], keys)
            # If the program stood still since, the claims may have ended, and be somebody else's.
            claimed = self._on_claimed if time.monotonic() - now < self.claim_s / 2 else self._make_sure
            for execution, claim, value in zip(executions, replies, values, strict=False):
                if claim is None:
                    self._lose(execution)
                elif type(claim) is bytes and (type(value) is bytes or value is None):
                    claimed(execution, now, value)
                else:
                    self._tasks.begin(self._claim_after_trouble(execution, claim, value))
            # Behind the first steps of the handlers, many of which are the last.
            self._writing.expect()

        self._store.post_all([*commands, *reads], tell, packed=b"".join(packed))

    def claim_once_more(self, execution: Execution) -> None:
        """The claim that is there may be our own."""
        self._tasks.begin(self._claim_once_more(execution))

    async def renew(self, execution: Execution, store: Store) -> bool:
        """Whether it is still ours. Also called in the background, with its store."""
        now, request = time.monotonic(), execution.request
        word = await claim_again(store, claim=request.claim, token=self._token, claim_ms=self._ms)
        if word == b"lost":
            execution.is_lost = True
        else:
            # In this order: who reads them, in another thread, is not to find a claim in time that had ended before.
            execution.has_lapsed |= word == b"claimed"
            execution.claimed_at = now
        return not execution.is_lost

    async def is_answered(self, request: Incoming) -> bool:
        """Raises StoreErrors."""
        commands: list[Command] = [("EXISTS", self._reader.response(request)), ("EXISTS", self._reader.error(request))]
        return any(without_errors(await self._store.call_all(commands)))

    async def keep_beyond(self, request: Incoming, answer_ms: int) -> bool:
        """If the request outlives its answer, let it be the claim that tells that it was served; and whether it is."""
        try:
            lives_ms = await self._store.call("PTTL", request.key)
            if lives_ms > answer_ms or lives_ms == _WITHOUT_END:
                kept_ms = lives_ms if lives_ms > 0 else _WITHOUT_END_MS
                await self._store.call("SET", request.claim, self._token, "PX", kept_ms)
                return True
        except StoreError as error:
            log.warning("claim not kept", extra={"key": request.key.decode(errors="replace"), "error": str(error)})
        return False

    def look_again(self, key: bytes, in_s: float) -> None:
        heapq.heappush(self._others, (time.monotonic() + in_s, key))
        if self._timer is None:
            self._set_timer()

    async def open_among(self, requests: Sequence[Incoming]) -> list[bytes]:
        """The keys of those that have neither an answer nor somebody who works on them; others are looked at again
        when their claim would have ended. Raises StoreErrors."""
        reader = self._reader
        commands: list[Command] = [("EXISTS", reader.response(request)) for request in requests]
        commands += [("EXISTS", reader.error(request)) for request in requests]
        commands += [("PTTL", request.claim) for request in requests]
        replies, number = without_errors(await self._store.call_all(commands)), len(requests)
        is_open = []
        for at, request in enumerate(requests):
            response, error, claim_ms = replies[at], replies[number + at], replies[2 * number + at]
            if response or error:
                continue
            if claim_ms == _GONE:
                is_open.append(request.key)
            else:
                in_s = self.claim_s if claim_ms == _WITHOUT_END else claim_ms / 1000
                self.look_again(request.key, max(in_s, AGAIN_AFTER_S))
        return is_open

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._tasks.cancel()

    # -- inside -----------------------------------------------------------------------------------------

    def _lose(self, execution: Execution) -> None:
        self.look_again(execution.request.key, self.claim_s)
        self._on_lost(execution)

    def _make_sure(self, execution: Execution, _: float, value: bytes | None) -> None:
        """That it is still ours, and nobody else has answered meanwhile."""
        self._tasks.begin(self._claim_after_standstill(execution, value))

    async def _claim_after_standstill(self, execution: Execution, value: bytes | None) -> None:
        try:
            is_ours = await self.renew(execution, self._store) and not await self.is_answered(execution.request)
        except StoreError as error:
            self._give_up(execution, error)
            return
        if is_ours:
            self._on_claimed(execution, execution.claimed_at, value)
        else:
            self._lose(execution)

    async def _claim_after_trouble(self, execution: Execution, claim: Any, value: Any) -> None:
        error = next(reply for reply in (claim, value) if isinstance(reply, StoreError))
        if isinstance(error, NotSent | OutcomeUnknown):
            await asyncio.sleep(AGAIN_AFTER_S)
            await self._claim_once_more(execution)
        elif value is None:
            self._on_claimed(execution, 0.0, None)
        else:
            self._give_up(execution, error)

    async def _claim_once_more(self, execution: Execution) -> None:
        # As long as a claim lasts that may be there already, and is not to be taken for somebody else's.
        until = time.monotonic() + self.claim_s
        while error := await self._tried_to_claim(execution):
            if not isinstance(error, NotSent | OutcomeUnknown) or time.monotonic() >= until:
                self._give_up(execution, error)
                return
            await asyncio.sleep(AGAIN_AFTER_S)

    async def _tried_to_claim(self, execution: Execution) -> StoreError | None:
        try:
            is_ours = await self.renew(execution, self._store)
            value = await self._store.call("GET", execution.request.key)
        except StoreError as error:
            return error
        if is_ours:
            execution.has_lapsed = False
            self._on_claimed(execution, execution.claimed_at, value)
        else:
            self._lose(execution)
        return None

    def _give_up(self, execution: Execution, error: StoreError) -> None:
        key = execution.request.key
        if isinstance(error, NotSent | OutcomeUnknown):
            self.look_again(key, AGAIN_AFTER_S)
        elif error.code != "WRONGTYPE":
            log.error("request not claimed", extra={"key": key.decode(errors="replace"), "error": str(error)})
            if isinstance(error, PASSES):
                self.look_again(key, AGAIN_AFTER_REFUSAL_S)
        self._on_claimed(execution, 0.0, None)

    def _set_timer(self) -> None:
        wait_s = max(self._others[0][0] - time.monotonic(), _TOGETHER_S)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look_at_due)

    def _look_at_due(self) -> None:
        self._timer, now, due = None, time.monotonic(), []
        while self._others and self._others[0][0] <= now:
            due.append(heapq.heappop(self._others)[1])
        if self._others:
            self._set_timer()
        if due:
            self._on_due(due)
