"""Keeps one wire connected, and keeps the line of those who wait for it.

    send ──> wire          connected, and room for more
         └─> queue         else: until connected, or until answers have made room, or until the caller's deadline

Commands leave in the order in which they came, whatever happens in between. Callers wait no longer than their
own deadline; the link itself never gives up, in steps that grow to a cap and are spread by chance, so that a
fleet does not come back in one instant. A refused sign-in is the exception: repeating it locks accounts, so it
fails everybody who waits, and only the next caller tries again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from kizuna.errors import Overloaded, SignInRefused, StoreError, TlsRefused, Unreachable
from kizuna.store.dialing import Address, Dialer
from kizuna.store.wire import Command, OnPush, Wire

log = logging.getLogger("kizuna.store")

Locate = Callable[[], Awaitable[Address]]
OnConnected = Callable[[Wire], Awaitable[None]]
_NEVER = float("inf")
_Queued = tuple[asyncio.Future[Any], Command, float, asyncio.TimerHandle]
_NETWORK_HINT = "is the address right, and does the network let us through?"


def backoff(first_s: float, longest_s: float) -> Iterator[float]:
    """Pauses that double up to a cap, each spread over its upper half."""
    pause_s = first_s
    while True:
        yield pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
        pause_s = min(pause_s * 2, longest_s)


class Link:
    def __init__(
        self,
        locate: Locate,
        dialer: Dialer,
        *,
        first_s: float = 0.05,
        longest_s: float = 1.0,
        on_push: OnPush | None = None,
        on_connected: OnConnected | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """`on_connected` runs on each new wire before anybody else gets it (a listener subscribes there)."""
        self.wire: Wire | None = None
        """The connection, while there is one."""
        self.connections = 0
        """How many were made so far: more than one means that we were cut off in between."""
        self._locate, self._dialer = locate, dialer
        self._first_s, self._longest_s = first_s, longest_s
        self._on_push, self._on_connected, self._on_lost = on_push, on_connected, on_lost
        self._task: asyncio.Task[Wire] | None = None
        self._last_error: StoreError | None = None
        self._closed = False
        self._queue: deque[_Queued] = deque()

    def send(self, command: Command, deadline: float) -> asyncio.Future[Any]:
        """Put one command in the line now; the future gets the reply, or an error of ours."""
        wire = self.wire
        if wire is not None and not self._queue and wire.has_room:
            return wire.send(command, deadline)
        return self._enqueue(command, deadline)

    async def connected(self, deadline: float) -> Wire:
        """The wire, connecting first if need be. Raises what keeps us from it once the deadline has passed."""
        if self.wire is not None:
            return self.wire
        task = self._connecting()
        loop = asyncio.get_running_loop()
        # Not `await task`: whoever gives up waiting must not take the others' connection along.
        await asyncio.wait([task], timeout=deadline - loop.time() if deadline < _NEVER else None)
        if not task.done():
            raise _copy(self._last_error or self._no_connection())
        if task.cancelled():
            raise Unreachable("the store was closed", self.describe(), "connect again")
        if error := task.exception():
            raise _copy(error)
        return task.result()

    def drop(self, reason: str) -> None:
        """The server at the other end is not the one we need: look again."""
        if self.wire is not None:
            self.wire.abort(reason)

    @property
    def is_closed(self) -> bool:
        return self._closed

    def describe(self) -> str:
        if self.wire is not None:
            return self.wire.server
        return self._last_error.server if self._last_error else "the server"

    async def aclose(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self.wire is not None:
            await self.wire.aclose()
        self._fail_queue(Unreachable("the store was closed", self.describe(), "connect again"))

    # -- inside -----------------------------------------------------------------------------------------

    def _enqueue(self, command: Command, deadline: float) -> asyncio.Future[Any]:
        if self.wire is None:
            self._connecting()
        else:
            self.wire.on_room = self._drain
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._queue.append((future, command, deadline, loop.call_at(deadline, self._give_up, future)))
        return future

    def _drain(self) -> None:
        wire = self.wire
        while wire is not None and self._queue and wire.has_room:
            future, command, deadline, timer = self._queue.popleft()
            timer.cancel()
            if not future.done():
                wire.send(command, deadline, future)
        if wire is not None:
            wire.on_room = self._drain if self._queue else None

    def _give_up(self, future: asyncio.Future[Any]) -> None:
        if future.done():
            return
        if self.wire is None:
            future.set_exception(_copy(self._last_error or self._no_connection()))
            return
        hint = "send less at once, or raise store.in_flight_bytes"
        future.set_exception(Overloaded("too much is waiting for an answer", self.wire.server, hint))

    def _fail_queue(self, error: BaseException) -> None:
        while self._queue:
            future, _, _, timer = self._queue.popleft()
            timer.cancel()
            if not future.done():
                future.set_exception(_copy(error))

    def _no_connection(self) -> StoreError:
        return Unreachable("no connection in time", self.describe(), _NETWORK_HINT)

    def _connecting(self) -> asyncio.Task[Wire]:
        if self._closed:
            raise Unreachable("the store was closed", self.describe(), "connect again")
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._connect(), name="kizuna link")
            self._task.add_done_callback(self._connect_ended)
        return self._task

    def _connect_ended(self, task: asyncio.Task[Wire]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail_queue(error)

    async def _connect(self) -> Wire:
        pauses = backoff(self._first_s, self._longest_s)
        while True:
            try:
                return await self._try_once()
            except (SignInRefused, TlsRefused) as error:
                self._last_error = error
                raise
            except StoreError as error:
                self._last_error = error
                log.debug("no connection", extra={"server": error.server, "error": str(error)})
            await asyncio.sleep(next(pauses))

    async def _try_once(self) -> Wire:
        wire = await self._dialer.open(await self._locate(), self._on_push, self._lost)
        try:
            if self._on_connected is not None:
                await self._on_connected(wire)
        except BaseException as error:
            wire.abort(f"the connection could not be prepared ({error})")
            raise
        if wire.lost is not None:
            raise Unreachable(wire.lost, wire.server, "it is being reconnected; try again")
        self.wire, self._last_error = wire, None
        self._drain()
        self.connections += 1
        if self.connections > 1:
            log.info("reconnected", extra={"server": wire.server})
        return wire

    def _lost(self, reason: str) -> None:
        wire, self.wire = self.wire, None
        if wire is None or self._closed:
            return
        log.warning("connection lost", extra={"server": wire.server, "reason": reason})
        self._connecting()
        if self._on_lost is not None:
            self._on_lost()


def _copy(error: BaseException) -> BaseException:
    """One for each who waits: an exception that is raised twice grows a traceback of both."""
    return type(error)(*error.args)
