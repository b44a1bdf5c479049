"""Keeps one wire connected, and keeps the line of those who wait for it.

    send ──> wire          connected, and room for more
         └─> queue         else: until connected, or until answers have made room, or until the caller's deadline

Commands leave in the order in which they came, whatever happens in between. Callers wait no longer than their
own deadline; the link itself never gives up, in steps that grow to a cap and are spread by chance, so that a
fleet does not come back in one instant. A refused sign-in is the exception: repeating it locks accounts, so it
fails everybody who waits, and only the next caller tries again.

What is queued is only referred to, not packed: it takes no more memory than those who wait have anyway.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

from kizuna.errors import KizunaError, NotSent, Overloaded, SignInRefused, StoreError, TlsRefused, Unreachable
from kizuna.store.dialing import Address, Dialer
from kizuna.store.taking import Together
from kizuna.store.wire import Command, OnPush, Wire, fail

log = logging.getLogger("kizuna.store")

Locate = Callable[[], Awaitable[Address]]
OnConnected = Callable[[Wire], Awaitable[None]]
OnRefusal = Callable[["Link", "asyncio.Future[Any]", Command, float, StoreError], bool]
"""Takes what was not run here, with its deadline; True if it will see to the future itself."""
_NEVER = float("inf")
# Timers go off a little before they are due, by the resolution of the clock.
_ABOUT_TO_S = 0.001
_Queued = tuple[asyncio.Future[Any], Command, float, asyncio.TimerHandle | None]
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
        server: str = "the server",
        first_s: float = 0.05,
        longest_s: float = 1.0,
        on_push: OnPush | None = None,
        on_read: Callable[[], None] | None = None,
        on_connected: OnConnected | None = None,
        on_lost: Callable[[], None] | None = None,
        on_refusal: OnRefusal | None = None,
    ) -> None:
        """`server` is how it is called until `locate` has told its address; `on_connected` runs on each new wire
        before anybody else gets it (a listener subscribes there)."""
        self.wire: Wire | None = None
        """The connection, while there is one."""
        self.connections = 0
        """How many were made so far: more than one means that we were cut off in between."""
        self.scripts: set[str] = set()
        """The SHAs of the scripts whose text was sent on the present connection."""
        self._locate, self._dialer = locate, dialer
        self._first_s, self._longest_s = first_s, longest_s
        self._on_push, self._on_read = on_push, on_read
        self._on_connected, self._on_lost = on_connected, on_lost
        self._on_refusal = functools.partial(on_refusal, self) if on_refusal is not None else None
        self._task: asyncio.Task[Wire] | None = None
        self._pauses = backoff(first_s, longest_s)
        self._connected_at = -_NEVER
        self._server = server
        self._last_error: StoreError | None = None
        self._closed = False
        self._queue: deque[_Queued] = deque()
        self._retired: set[Wire] = set()

    def send(self, command: Command, deadline: float, future: asyncio.Future[Any] | None = None) -> asyncio.Future[Any]:
        """Put one command in the line now; the future gets the reply, or an error of ours."""
        wire = self.wire
        if wire is not None and not self._queue and wire.in_flight < wire.most_in_flight:
            return wire.send(command, deadline, future)
        return self._enqueue(command, deadline, future)

    @property
    def is_idle(self) -> bool:
        """Whether a command would leave at once, and be the only one."""
        return self.wire is not None and not self._queue and not self.wire.in_flight

    def send_all(
        self, commands: Sequence[Command], deadline: float, together: Together, packed: bytes | None = None
    ) -> None:
        """Put some commands in the line now; `together` gets all their replies."""
        wire = self.wire
        if wire is not None and not self._queue and wire.in_flight < wire.most_in_flight:
            wire.send_all(commands, deadline, together, packed)
            return
        for number, command in enumerate(commands):
            self._enqueue(command, deadline, cast("asyncio.Future[Any]", together.place(number)))

    def connect(self) -> asyncio.Task[Wire]:
        """Begin to connect, if that is not under way; for whoever needs the connection before the first command."""
        if self._closed:
            raise self._was_closed()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._connect(), name="kizuna link")
            self._task.add_done_callback(self._connect_ended)
        return self._task

    async def connected(self, deadline: float) -> Wire:
        """The wire, connecting first if need be. Raises what keeps us from it once the deadline has passed."""
        if self.wire is not None:
            return self.wire
        task = self.connect()
        loop = asyncio.get_running_loop()
        # Not `await task`: whoever gives up waiting must not take the others' connection along.
        await asyncio.wait([task], timeout=deadline - loop.time() if deadline < _NEVER else None)
        if not task.done():
            raise self._no_connection()
        if task.cancelled():
            raise self._was_closed()
        if error := task.exception():
            raise copy_of(error)
        return task.result()

    def look_again(self, reason: str) -> None:
        """The server at the other end may not be the one we need: connect anew, where we are led to now.

        What was sent is still answered. Not more than once in `longest_s`, however many ask for it: a server that
        stays a replica would make us reconnect for every write.
        """
        wire = self.wire
        if wire is None or asyncio.get_running_loop().time() - self._connected_at < self._longest_s:
            return
        log.warning("connection given up", extra={"server": wire.server, "reason": reason})
        self._retire()
        self.connect()

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def has_ended(self) -> bool:
        """Closed, and nothing of it is left."""
        return self._closed and not self._retired and (self._task is None or self._task.done())

    @property
    def was_refused(self) -> bool:
        """The latest attempt ended with an error that is not repeated by itself."""
        task = self._task
        return task is not None and task.done() and not task.cancelled() and task.exception() is not None

    def describe(self) -> str:
        """The server's address, as far as it is known by now."""
        return self._server

    def leave(self) -> None:
        """Nobody needs this server any more: what was sent is still answered, what was not fails as not sent."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self.wire is not None:
            self._retire()
        self._fail_queue(self._was_closed())

    async def aclose(self) -> None:
        """Leave nothing behind. What was sent and not answered yet fails, with its outcome unknown."""
        self.leave()
        if self._task is not None:
            await asyncio.wait([self._task])
        for wire in list(self._retired):
            await wire.aclose()

    # -- inside -----------------------------------------------------------------------------------------

    def _enqueue(self, command: Command, deadline: float, future: asyncio.Future[Any] | None) -> asyncio.Future[Any]:
        if self._closed and future is not None:
            # A taker is told; it has no call of its own that could raise.
            fail(future, self._was_closed())
            return future
        if self.wire is None:
            self.connect()
        else:
            self.wire.on_room = self._drain
        loop = asyncio.get_running_loop()
        if future is None:
            future = loop.create_future()
        timer = loop.call_at(deadline, self._give_up, future) if deadline < _NEVER else None
        self._queue.append((future, command, deadline, timer))
        return future

    def _drain(self) -> None:
        wire = self.wire
        if wire is None:
            return
        while self._queue and wire.in_flight < wire.most_in_flight:
            future, command, deadline, timer = self._queue.popleft()
            if _is_given_up(deadline):
                continue
            if timer is not None:
                timer.cancel()
            if future.done():
                continue
            try:
                wire.send(command, deadline, future)
            except (TypeError, ValueError) as error:
                # An argument that cannot be sent is its caller's trouble, and nobody else's.
                fail(future, error)
        wire.on_room = self._drain if self._queue else None

    def _give_up(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            fail(future, self._no_connection() if self.wire is None else self._no_room(self.wire.server))
        # Else a long absence of the server would fill the queue with those who have left.
        while self._queue and (self._queue[0][0].done() or _is_given_up(self._queue[0][2])):
            self._queue.popleft()

    def _fail_queue(self, error: BaseException) -> None:
        while self._queue:
            future, command, deadline, timer = self._queue.popleft()
            if _is_given_up(deadline):
                continue
            if timer is not None:
                timer.cancel()
            if not future.done():
                self._refuse(future, command, deadline, copy_of(error))

    def _refuse(self, future: asyncio.Future[Any], command: Command, deadline: float, error: BaseException) -> None:
        take = self._on_refusal
        if take is None or not isinstance(error, StoreError) or not take(future, command, deadline, error):
            fail(future, error)

    def _no_room(self, server: str) -> Overloaded:
        return Overloaded(
            "too much is waiting for an answer", server, "send less at once, or raise store.in_flight_bytes"
        )

    def _no_connection(self) -> BaseException:
        """Why there is none, as the latest attempt has it."""
        return copy_of(self._last_error or Unreachable("no connection in time", self._server, _NETWORK_HINT))

    def _was_closed(self) -> Unreachable:
        return Unreachable("the store was closed", self._server, "connect again")

    def _connect_ended(self, task: asyncio.Task[Wire]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Of the first attempt, whoever asked for it is told. Of later ones, there may be nobody to tell.
            level = logging.WARNING if self.connections else logging.DEBUG
            log.log(level, "not connected", extra={"server": self._server, "error": str(error)})
            self._fail_queue(error)

    async def _connect(self) -> Wire:
        if asyncio.get_running_loop().time() - self._connected_at >= self._longest_s:
            self._pauses = backoff(self._first_s, self._longest_s)
        else:
            # A server that takes us and drops us at once is no better than one that is away.
            await asyncio.sleep(next(self._pauses))
        while True:
            try:
                return await self._try_once()
            except (SignInRefused, TlsRefused):
                self._last_error = None
                raise
            except StoreError as error:
                # Whatever happened to our own first commands: those of the callers were not sent.
                self._last_error = error if isinstance(error, NotSent) else Unreachable(*error.args)
                log.debug("no connection", extra={"server": error.server, "error": str(error)})
            await asyncio.sleep(next(self._pauses))

    async def _try_once(self) -> Wire:
        address = await self._locate()
        self._server = str(address)
        wire = await self._dialer.open(address, self._on_push, self._on_read, self._lost)
        try:
            if self._on_connected is not None:
                await self._on_connected(wire)
        except BaseException as error:
            wire.abort(f"the connection could not be prepared ({error})")
            raise
        if wire.lost is not None:
            raise Unreachable(wire.lost, wire.server, "it is being reconnected; try again")
        wire.on_refusal = self._on_refusal
        self.wire, self._last_error = wire, None
        self._connected_at = asyncio.get_running_loop().time()
        self._drain()
        self.connections += 1
        if self.connections > 1:
            log.info("reconnected", extra={"server": wire.server})
        return wire

    def _retire(self) -> None:
        wire = self._detach()
        if wire is not None:
            self._retired.add(wire)
            wire.retire(self._retired.discard)

    def _detach(self) -> Wire | None:
        wire, self.wire = self.wire, None
        # What was sent so far, the next server may not have seen.
        self.scripts.clear()
        return wire

    def _lost(self, reason: str) -> None:
        wire = self._detach()
        if wire is None:
            return
        log.warning("connection lost", extra={"server": wire.server, "reason": reason})
        self.connect()
        if self._on_lost is not None:
            self._on_lost()


def _is_given_up(deadline: float) -> bool:
    """Whoever waits in the queue has been told so by his timer, or is about to be: takers do not know it themselves."""
    return deadline <= asyncio.get_running_loop().time() + _ABOUT_TO_S


def copy_of(error: BaseException) -> BaseException:
    """One for each who waits: an exception that is raised twice grows a traceback of both."""
    return type(error)(*error.args) if isinstance(error, KizunaError) else error
