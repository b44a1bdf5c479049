"""The requests that one unit waits for.

    subscribe ──> write the request ──> an answer is set ──> read it ──> done
                        │                                     │
                        └─ not written?                       └─ missed it?
                           look, then write again                look again, after each reconnect and at the end

An answer, be it a reply or an error, cannot be missed: it is announced to who has subscribed before, it is looked for
whenever announcements may have been lost, and once more before a timeout is told.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeGuard

from kizuna.errors import NotSent, OutcomeUnknown, RequestFailed, RequestTimeout, StoreError, Unreachable
from kizuna.store.taking import Taker
from kizuna.units.paths import ADDRESS_END, SHORT_LIVED, SHORT_MS, claim_id
from kizuna.units.short_cut import ShortCut
from kizuna.units.tasks import Tasks

if TYPE_CHECKING:
    from kizuna.errors import KizunaError
    from kizuna.units.units import Units

log = logging.getLogger("kizuna.units")

_NEVER = math.inf
_AGAIN_AFTER_S = 0.05


class Session(Taker):
    """One request that is waited for. As a taker, it is told what became of the write of its request."""

    __slots__ = ("began", "deadline", "future", "id", "raw", "requests", "timeout_s", "to", "trouble", "ttl_ms")

    def __init__(
        self,
        requests: Requests,
        to: str,
        id_: bytes,
        raw: bytes,
        ttl_ms: int,
        timeout_s: float,
        future: asyncio.Future[bytes],
    ) -> None:
        self.requests = requests
        self.to, self.id, self.raw, self.ttl_ms, self.timeout_s = to, id_, raw, ttl_ms, timeout_s
        self.began = time.monotonic()
        self.deadline = self.began + timeout_s
        self.future = future
        self.trouble: StoreError | None = None
        """Why the request may not have been written, or the answer not been read."""

    def done(self) -> bool:
        return self.future.done()

    def set_result(self, reply: Any) -> None:
        """The request is written."""

    def set_exception(self, error: BaseException) -> None:
        self.requests.write_failed(self, error)

    def take_value(self, key: bytes, value: bytes | None) -> None:
        """None: it has ended already, or was none; there may be another."""
        if value is not None:
            self.requests.answered(self, key, value)

    def take_trouble(self, key: bytes, error: StoreError) -> None:
        self.requests.read_failed(self, key, error)


class Requests:
    """Of one unit."""

    def __init__(self, units: Units, unit: str) -> None:
        self._units, self._store, self._reading = units, units.store, units.reading
        self._counts = units.counts_of(unit)
        self._unit = unit
        own = f"{units.root}/{unit}"
        self._request, self._response, self._error = (f"{own}/{status}/".encode() for status in ("req", "res", "err"))
        self._ears = [
            units.ears.ear("res", unit, f"{own}/res/*", self._heard, self.look_again),
            units.ears.ear("err", unit, f"{own}/err/*", self._heard, self.look_again),
        ]
        self._short_cut = ShortCut(units.store, (f"{own}/res/*", f"{own}/err/*"), self._told)
        self._start = len(self._response)
        self._waiting: dict[bytes, Session] = {}
        self._twins: dict[bytes, list[Session]] = {}
        """Who waits for an id that somebody else waits for already."""
        self._unique, self._numbers = secrets.token_hex(6), itertools.count(1)
        self._watch: asyncio.TimerHandle | None = None
        self._watch_at = _NEVER
        self._tasks = Tasks()
        self.is_open = False
        self._is_closed = units.is_closed

    async def open(self) -> None:
        """Hear of answers from now on. Harmless when repeated."""
        if not self._is_closed:
            if not self._units.ears.is_crowded("res"):
                await self._short_cut.open()
            await asyncio.gather(*(ear.open() for ear in self._ears))
        if self._is_closed:  # by now
            raise Unreachable("the units were closed", "this process", "connect again")
        self.is_open = True

    @property
    def polling(self) -> KizunaError | None:
        """Why answers have to be looked for; None while they are heard of."""
        return next((ear.polling for ear in self._ears if ear.polling is not None), None)

    async def aclose(self) -> None:
        """Whoever still waits is told so: nothing would be heard any more."""
        self.is_open, self._is_closed = False, True
        for session in self._everybody():
            what = f"the units were closed while {self.path(session)} was waited for"
            self._fail(session, OutcomeUnknown(what, "this process", "the request may be served all the same"))
        self._tasks.cancel()
        if self._watch is not None:
            self._watch.cancel()
        await self._short_cut.aclose()
        for ear in self._ears:
            await ear.aclose()

    def unique_id(self, to: str, ttl_ms: int) -> str:
        """An id that no other request ever had."""
        mark = SHORT_LIVED if ttl_ms <= SHORT_MS else ""
        unique = f"{mark}{self._unique}{next(self._numbers):x}"
        return f"{to}{ADDRESS_END}{unique}" if to else unique

    def begin(self, to: str, id_: str, raw: bytes, ttl_ms: int, timeout_s: float) -> Session:
        """Write the request. To be called when `open`; `end` is due in any case."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        session = Session(self, to, id_.encode(), raw, ttl_ms, timeout_s, future)
        if self._waiting.setdefault(session.id, session) is not session:
            self._twins.setdefault(session.id, []).append(session)
        self._counts.requests += 1
        alone = len(self._waiting) == 1
        self._units.writing.set(session, self._request + session.id, raw, ttl_ms, alone=alone)
        if session.deadline < self._watch_at:
            self._watch_from(session.deadline)
        return session

    def end(self, session: Session) -> None:
        if session.id in self._twins:
            self._end_twin(session)
        else:
            del self._waiting[session.id]

    def look(self, session: Session) -> None:
        """Whether the answer is there already: who has chosen the id may have asked before."""
        self._reading.ask([(stem + session.id, session) for stem in (self._response, self._error)])

    def look_again(self) -> None:
        """For all: answers may have been missed."""
        if self._waiting:
            self._counts.resyncs += 1
            for session in self._everybody():
                self.look(session)

    def path(self, session: Session) -> str:
        return (self._request + session.id).decode()

    # -- what sessions are told -------------------------------------------------------------------------

    def answered(self, session: Session, key: bytes, value: bytes) -> None:
        if session.future.done():
            return
        self._counts.latency.observe(time.monotonic() - session.began)
        if key.startswith(self._response):
            self._counts.replies += 1
            session.future.set_result(value)
        else:
            self._counts.errors += 1
            session.future.set_exception(RequestFailed(self.path(session), value))

    def read_failed(self, session: Session, key: bytes, error: StoreError) -> None:
        session.trouble = error
        if self._may_be_repeated(error):
            self._tasks.begin(self._read_again(session, key))
        else:
            self._fail(session, error)

    def write_failed(self, session: Session, error: BaseException) -> None:
        if self._may_be_repeated(error):
            session.trouble = error
            self._tasks.begin(self._write_again(session))
        else:
            self._fail(session, error)

    # -- inside -----------------------------------------------------------------------------------------

    def _heard(self, keys: list[bytes]) -> None:
        """Replies or errors were set, below this unit: both are as long."""
        start, waiting = self._start, self._waiting
        asked = [
            (key, session)
            for key in keys
            # Done already, if the answer came by the short cut a moment ago.
            if (session := waiting.get(key[start:])) is not None and not session.future.done()
        ]
        if self._twins:
            asked += [(key, twin) for key in keys for twin in self._twins.get(key[start:], ())]
        if asked:
            self._reading.ask(asked)

    def _everybody(self) -> Iterable[Session]:
        return itertools.chain(self._waiting.values(), *self._twins.values())

    def _end_twin(self, session: Session) -> None:
        twins = self._twins[session.id]
        if self._waiting[session.id] is session:
            self._waiting[session.id] = twins.pop()
        else:
            twins.remove(session)
        if not twins:
            del self._twins[session.id]

    def _told(self, path: bytes, value: bytes) -> None:
        """Whoever answered has also published the answer."""
        session = self._waiting.get(path[self._start :])
        if session is not None:
            session.take_value(path, value)

    def _fail(self, session: Session, error: BaseException) -> None:
        if not session.future.done():
            session.future.set_exception(error)
            # Who no longer waits need not hear of it in the log either.
            session.future.exception()

    def _may_be_repeated(self, error: BaseException) -> TypeGuard[StoreError]:
        return isinstance(error, NotSent | OutcomeUnknown) and not self._is_closed

    async def _read_again(self, session: Session, key: bytes) -> None:
        await asyncio.sleep(_AGAIN_AFTER_S)
        if not session.done():
            self._reading.ask([(key, session)])

    async def _write_again(self, session: Session) -> None:
        """Whether the request was written is not known. It may have been, and answered, and its claim have ended: so
        look first. NX, because one that is still there must not begin its life anew."""
        await asyncio.sleep(_AGAIN_AFTER_S)
        if not session.done() and await self._has_looked(session, session.deadline) and not session.done():
            self._store.post(session, "SET", self._request + session.id, session.raw, "NX", "PX", session.ttl_ms)

    def _watch_from(self, deadline: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch_at = deadline
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(max(0.0, deadline - time.monotonic()), self._pass_deadlines)

    def _pass_deadlines(self) -> None:
        """One timer for all, set for the earliest."""
        self._watch, self._watch_at = None, _NEVER
        now, earliest = time.monotonic(), _NEVER
        for session in self._everybody():
            if session.deadline <= now:
                session.deadline = _NEVER
                self._tasks.begin(self._look_for_the_last_time(session))
            elif session.deadline < earliest:
                earliest = session.deadline
        if earliest < _NEVER:
            self._watch_from(earliest)

    async def _look_for_the_last_time(self, session: Session) -> None:
        """No answer that was written in time is told as a timeout. A server that cannot be asked is given the time of
        one command to come back."""
        until = time.monotonic() + self._store.settings.store.timeout_s
        await self._has_looked(session, until)
        if session.done():
            return
        claimed = await self._is_claimed(session, until)
        self._counts.timeouts += 1
        timeout = RequestTimeout(self.path(session), session.to, session.timeout_s, claimed)
        timeout.__cause__ = session.trouble
        self._fail(session, timeout)

    async def _has_looked(self, session: Session, until: float) -> bool:
        """Take the answer, if it is there. False if the server could not be asked in that time."""
        keys = [self._response + session.id, self._error + session.id]
        while (left_s := until - time.monotonic()) > 0 and not session.done():
            replies = await self._store.call_all(self._reading.commands_for(keys), timeout_s=left_s)
            values = self._reading.values_in(replies, keys)
            if not any(isinstance(value, StoreError) for value in values):
                for key, value in zip(keys, values, strict=True):
                    session.take_value(key, value)
                return True
            await asyncio.sleep(_AGAIN_AFTER_S)
        return False

    async def _is_claimed(self, session: Session, until: float) -> bool | None:
        """None where that cannot be known."""
        left_s = until - time.monotonic()
        if not session.to or left_s <= 0:
            return None
        claim = f"{self._units.root}/{session.to}/keep/{claim_id(self._unit, session.id.decode())}"
        try:
            return bool(await self._store.call("EXISTS", claim, timeout_s=left_s))
        except StoreError as error:
            session.trouble = error
            return None
