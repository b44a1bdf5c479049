"""Waiting for assignments: thousands of waiters on one subscription.

    assign:<ticket> is set ──notification──> look ──> told
    a ticket is deleted    ──kizuna:ended──> look ──> TicketMissing
    anything else          ──every now and then, all at once──> look

A notification is a hint and may be lost; the keys are the truth. Where changes are not announced, all are looked at
ten times a second, as minimatch does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kizuna.errors import PermissionDenied, StoreError, TicketMissing, Unreachable
from kizuna.match.hearing import Hearing
from kizuna.match.shard import chunks
from kizuna.match.tickets import Assignment
from kizuna.store.repeating import until_known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kizuna.match.servers import Servers
    from kizuna.match.shard import Shard

log = logging.getLogger("kizuna.match")

_LOOKED_AT_ONCE = 500


class Watchers:
    """All of one process. Subscribes when the first one waits, and stays subscribed until it is closed."""

    def __init__(self, servers: Servers, shards: Sequence[Shard]) -> None:
        self._servers, self._shards = servers, shards
        self._waiters: dict[str, dict[bytes, set[_Waiter]]] = {shard.prefix: defaultdict(set) for shard in shards}
        self._look_now = asyncio.Event()
        self._hearing = Hearing("assignments", self._look_now.set)
        self._endings = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._closed = False
        self.told = 0
        """Assignments that somebody here was told."""

    @property
    def is_polling(self) -> bool:
        """The servers announce no changes: assignments are looked for."""
        return self._hearing.is_deaf

    @property
    def number(self) -> int:
        return sum(len(waiters) for by_id in self._waiters.values() for waiters in by_id.values())

    async def watch(self, shard: Shard, id_: str) -> AsyncGenerator[Assignment]:
        """The assignment once there is one, and each that differs from the one before. TicketMissing when the ticket
        is gone."""
        shard.body(id_)
        await self._start()
        by_id, raw = self._waiters[shard.prefix], id_.encode()
        waiter = _Waiter()
        by_id[raw].add(waiter)
        try:
            body, is_there = await until_known(lambda: self._look(shard, id_))
            while True:
                if body is not None and body != waiter.last:
                    waiter.last = body
                    self.told += 1
                    yield Assignment.decode(body)
                if not is_there:
                    raise TicketMissing(id_)
                body, is_there = await self._look_when_woken(waiter, shard, id_)
        finally:
            by_id[raw].discard(waiter)
            if not by_id[raw]:
                del by_id[raw]

    async def aclose(self) -> None:
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        self._wake_all()
        await self._hearing.aclose()
        await self._endings.aclose()

    async def _look_when_woken(self, waiter: _Waiter, shard: Shard, id_: str) -> tuple[bytes | None, bool]:
        while True:
            await waiter.wake.wait()
            waiter.wake.clear()
            if self._closed:
                raise Unreachable("matchmaking was closed", "store", "connect again")
            try:
                return await self._look(shard, id_)
            except StoreError as error:
                # The server is away: when it is back, all are looked at.
                log.debug("assignment could not be looked at", extra={"ticket": id_, "error": str(error)})

    # -- hearing ------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._looking is not None:
            return
        async with self._starting:
            if self._looking is None:
                await self._subscribe()
                self._looking = asyncio.create_task(self._look_every_now_and_then(), name="kizuna match watchers")

    async def _subscribe(self) -> None:
        assignments, main = await self._servers.assignments(), self._servers.main
        for shard in self._shards:
            heard_of = partial(self._heard_of, shard)
            await self._hearing.listen(assignments, f"{shard.assignment_beginning}*", heard_of, ("set",))
            # Without it, the end of a ticket is noticed when all are looked at.
            with suppress(PermissionDenied):
                ended = main.events.tap_messages(shard.ended, partial(self._heard_of_end, shard))
                await self._endings.enter_async_context(ended)

    def _heard_of(self, shard: Shard, keys: list[bytes]) -> None:
        beginning = len(shard.assignment_beginning.encode())
        for key in keys:
            self._wake(shard, key[beginning:])

    def _heard_of_end(self, shard: Shard, _: bytes, id_: bytes) -> None:
        self._wake(shard, id_)

    def _wake(self, shard: Shard, id_: bytes) -> None:
        for waiter in self._waiters[shard.prefix].get(id_, ()):
            waiter.wake.set()

    def _wake_all(self) -> None:
        for by_id in self._waiters.values():
            for waiters in by_id.values():
                for waiter in waiters:
                    waiter.wake.set()

    # -- looking ------------------------------------------------------------------------------------------

    async def _look(self, shard: Shard, id_: str) -> tuple[bytes | None, bool]:
        """Its assignment, and whether the ticket is there."""
        if self._servers.has_other_assignments:
            return await self._look_at_both(shard, id_)
        ticket, assignment = await self._servers.main.call("MGET", shard.body(id_), shard.assignment(id_))
        return assignment, ticket is not None

    async def _look_at_both(self, shard: Shard, id_: str) -> tuple[bytes | None, bool]:
        # First whether it is there: were it assigned and ended in between, it would only seem to be there still.
        there = self._servers.main.call("EXISTS", shard.body(id_))
        assignments = await self._servers.assignments()
        body, is_there = await asyncio.gather(assignments.get(shard.assignment(id_)), there)
        return body, bool(is_there)

    async def _look_every_now_and_then(self) -> None:
        settings = self._servers.settings
        while True:
            every_s = settings.poll_every_s if self.is_polling else settings.look_every_s
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._look_now.wait()
            self._look_now.clear()
            try:
                await self._hearing.try_again()
                await asyncio.gather(*(self._look_at_all(shard) for shard in self._shards))
            except StoreError as error:
                # Who waits goes on waiting: the connection comes back, and with it a LookAgain.
                log.debug("assignments could not be looked for", extra={"error": str(error)})

    async def _look_at_all(self, shard: Shard) -> None:
        for ids in chunks(list(self._waiters[shard.prefix]), _LOOKED_AT_ONCE):
            await self._look_at(shard, ids)

    async def _look_at(self, shard: Shard, ids: Sequence[bytes]) -> None:
        beginning, prefix = shard.assignment_beginning.encode(), shard.prefix.encode()
        assignments = await self._servers.assignments()
        there = self._servers.main.call_all([("EXISTS", prefix + id_) for id_ in ids])
        bodies = assignments.call("MGET", *(beginning + id_ for id_ in ids))
        replies: list[Any] = list(await asyncio.gather(there, bodies))
        for id_, is_there, body in zip(ids, *replies, strict=True):
            for waiter in self._waiters[shard.prefix].get(id_, ()):
                if is_there == 0 or (body is not None and body != waiter.last):
                    waiter.wake.set()


class _Waiter:
    __slots__ = ("last", "wake")

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.last: bytes | None = None
        """What it was told."""
