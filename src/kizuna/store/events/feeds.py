"""What those who wait for events hold in their hands: a feed to iterate over, or waiters for single keys.

This module does no I/O: `listening` calls `take`, `look_again`, `fail` and `recover`, all of them cheap.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, Self, TypeVar

from msgspec import Struct

from kizuna.errors import KizunaError, Unreachable
from kizuna.store.events.flags import NONE, Letters


class Change(Struct, frozen=True):
    """Something happened to a key: a hint, and no more. What is true now is in the key."""

    key: str
    """Bytes that are no UTF-8 are kept as surrogates; no key of ours has any."""
    kind: str


class Message(Struct, frozen=True):
    """Somebody published this."""

    channel: str
    payload: bytes


class LookAgain(Struct, frozen=True):
    """Events may have been missed until now. We hear again, so look at the keys themselves, after this."""

    reason: str


T = TypeVar("T", Change, Message)
Make = Callable[[bytes, bytes], T | None]


@dataclass
class Counts:
    """What happened since the process began to listen."""

    received: int = 0
    """Messages that the servers sent us, wanted or not."""
    dropped: int = 0
    """Those that a slow reader had to be spared."""
    look_agains: int = 0
    """How often readers were told to look again."""
    reconnects: int = 0
    canary_failures: int = 0
    """How often a connection did not prove in time that it hears."""


class Sink(ABC):
    """Somebody to be told. `live` once its subscription stands: before that it has nothing to miss."""

    def __init__(self, letters: Letters, counts: Counts) -> None:
        self.letters = letters
        self.live = False
        self._counts = counts
        self._closed = False
        self._failures: dict[str, KizunaError] = {}

    @abstractmethod
    def take(self, channel: bytes, payload: bytes) -> None:
        """A message came on the channel that this one subscribed to."""

    def look_again(self, reason: str) -> None:
        if self.live:
            self._counts.look_agains += 1
            self._look_again(LookAgain(reason))

    def fail(self, source: str, error: KizunaError) -> None:
        """As long as this holds, nothing can be heard from there: waiting would be waiting for ever."""
        if self.live:
            self._failures[source] = error
            self._failed()

    def recover(self, source: str) -> None:
        self._failures.pop(source, None)

    def close(self) -> None:
        self._closed = True
        self._failed()

    def _why_not(self) -> KizunaError | None:
        """What keeps us from hearing; each time another instance, since each is raised."""
        if self._closed:
            return Unreachable("this reader is closed", "store.events", "enter watch() or listen() again")
        error = next(iter(self._failures.values()), None)
        return None if error is None else type(error)(*error.args)

    @abstractmethod
    def _look_again(self, again: LookAgain) -> None: ...

    @abstractmethod
    def _failed(self) -> None: ...


class Feed(Sink, Generic[T]):
    """Events in the order in which they came, as an async iterator; ends when its `async with` does.

    When events may have been missed, a LookAgain stands in their place. Holds a bounded number: who is slower
    than that loses all it had not read yet, for one LookAgain. While the server cannot be heard for a reason
    that waiting does not mend (NotificationsOff, PermissionDenied, SignInRefused …), reading raises it.
    """

    def __init__(self, make: Make[T], letters: Letters, buffer: int, counts: Counts) -> None:
        super().__init__(letters, counts)
        self._make: Make[T] = make
        self._buffer = buffer
        self._events: deque[T | LookAgain] = deque()
        self._something = asyncio.Event()

    async def next(self, *, timeout_s: float | None = None) -> T | LookAgain | None:
        """The next event, or None if none came in that time. Raises Unreachable once the feed is closed."""
        if self._events:
            return self._events.popleft()
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await self._await_next()
        except TimeoutError:
            if limit.expired():
                return None
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T | LookAgain:
        if self._events:
            return self._events.popleft()
        try:
            return await self._await_next()
        except Unreachable:
            if self._closed:
                raise StopAsyncIteration from None
            raise

    def take(self, channel: bytes, payload: bytes) -> None:
        event = self._make(channel, payload)
        if event is None:
            return
        if len(self._events) >= self._buffer:
            self._overflow()
            return
        self._events.append(event)
        self._something.set()

    async def _await_next(self) -> T | LookAgain:
        while not self._events:
            if error := self._why_not():
                raise error
            self._something.clear()
            await self._something.wait()
        return self._events.popleft()

    def _overflow(self) -> None:
        self._counts.dropped += sum(not isinstance(event, LookAgain) for event in self._events) + 1
        self._events.clear()
        self.look_again(f"the reader was slow: more than {self._buffer} events waited for it, and were dropped")

    def _look_again(self, again: LookAgain) -> None:
        # Two in a row say no more than one, and a flapping network must not fill the buffer with them.
        if self._events and isinstance(self._events[-1], LookAgain):
            self._events.pop()
        self._events.append(again)
        self._something.set()

    def _failed(self) -> None:
        self._something.set()


class Waiters(Sink):
    """Any number of tasks that wait for one key each, below one subscription. A wait costs a dict entry."""

    def __init__(self, prefix: bytes, pattern: bytes, kinds: Mapping[bytes, str], letters: Letters, counts: Counts):
        super().__init__(letters, counts)
        self._prefix = prefix
        self._head = literal_head(pattern)
        self._kinds = kinds
        self._waiting: dict[bytes, list[asyncio.Future[Change | LookAgain]]] = {}

    def waiter(self, key: str) -> asyncio.Future[Change | LookAgain]:
        """A future for the next event of this key; or for a LookAgain, if events may have been missed.

        Ask for it, then write what will be answered, then look at the key, then await it. Cancel it, or let
        `asyncio.timeout` do so, to wait no longer. Raises what `Feed` would raise while nothing can be heard.
        """
        raw = key.encode()
        if not raw.startswith(self._head):
            raise ValueError(f"{key!r} is outside of what was subscribed to, {self._head.decode()!r}…")
        if error := self._why_not():
            raise error
        channel = self._prefix + raw
        future: asyncio.Future[Change | LookAgain] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(channel, []).append(future)
        future.add_done_callback(partial(self._forget, channel))
        return future

    def __len__(self) -> int:
        """How many keys are waited for now."""
        return len(self._waiting)

    def take(self, channel: bytes, payload: bytes) -> None:
        kind = self._kinds.get(payload)
        if kind is None or channel not in self._waiting:
            return
        change = Change(channel[len(self._prefix) :].decode(), kind)
        for future in self._waiting.pop(channel):
            if not future.done():
                future.set_result(change)

    def _look_again(self, again: LookAgain) -> None:
        for future in self._everybody():
            future.set_result(again)

    def _failed(self) -> None:
        for future in self._everybody():
            error = self._why_not()
            assert error is not None  # noqa: S101 - it is what we are called for
            future.set_exception(error)
            future.exception()  # who no longer awaits it need not hear of it in the log either

    def _everybody(self) -> list[asyncio.Future[Change | LookAgain]]:
        waiting, self._waiting = self._waiting, {}
        return [future for futures in waiting.values() for future in futures if not future.done()]

    def _forget(self, channel: bytes, future: asyncio.Future[Change | LookAgain]) -> None:
        """Only who gave up is still in the list."""
        futures = self._waiting.get(channel)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._waiting[channel]


class Tap(Sink):
    """Calls a function with the keys that have changed, as many as were told at once.

    `on_look_again` is called when events may have been missed, and `on_trouble` when nothing can be heard for a reason
    that waiting does not mend; once it can, that is a LookAgain. `on_close` is called when nothing more will be heard:
    the store was closed, or the `async with` has ended.
    """

    def __init__(
        self,
        prefix: bytes,
        kinds: Mapping[bytes, str],
        letters: Letters,
        counts: Counts,
        soon: Callable[[Callable[[], None]], None],
        on_changes: Callable[[list[bytes]], None],
        on_look_again: Callable[[LookAgain], None],
        on_trouble: Callable[[KizunaError], None],
        on_close: Callable[[], None],
    ) -> None:
        super().__init__(letters, counts)
        self._start = len(prefix)
        self._kinds = kinds
        self._soon = soon
        self._on_changes, self._on_look_again, self._on_trouble = on_changes, on_look_again, on_trouble
        self._on_close = on_close
        self._keys: list[bytes] = []

    def take(self, channel: bytes, payload: bytes) -> None:
        if payload in self._kinds:
            if not self._keys:
                self._soon(self._tell)
            self._keys.append(channel[self._start :])

    def _tell(self) -> None:
        keys, self._keys = self._keys, []
        if not self._closed:
            self._on_changes(keys)

    def _look_again(self, again: LookAgain) -> None:
        self._on_look_again(again)
        # One of several servers is heard again; another may still not be.
        self._failed()

    def _failed(self) -> None:
        if self._closed:
            self._on_close()
        elif error := self._why_not():
            self._on_trouble(error)


class MessageTap(Sink):
    """Calls a function with channel and payload of each message. What is missed while nobody is connected is not told:
    for those to whom a message is no more than a short cut."""

    def __init__(self, counts: Counts, on_message: Callable[[bytes, bytes], None]) -> None:
        super().__init__(NONE, counts)
        self._on_message = on_message

    def take(self, channel: bytes, payload: bytes) -> None:
        self._on_message(channel, payload)

    def _look_again(self, again: LookAgain) -> None:
        pass

    def _failed(self) -> None:
        pass


def changes(prefix: bytes, kinds: Mapping[bytes, str]) -> Make[Change]:
    """Makes changes of what comes on keyspace channels, of the kinds asked for only."""
    start = len(prefix)

    def make(channel: bytes, payload: bytes) -> Change | None:
        kind = kinds.get(payload)
        return None if kind is None else Change(channel[start:].decode(errors="surrogateescape"), kind)

    return make


def message(channel: bytes, payload: bytes) -> Message:
    return Message(channel.decode(errors="surrogateescape"), payload)


def is_pattern(name: bytes) -> bool:
    return literal_head(name) != name


def literal_head(pattern: bytes) -> bytes:
    """What every name that the pattern matches begins with."""
    ends = (place for place in map(pattern.find, (b"*", b"?", b"[", b"\\")) if place >= 0)
    return pattern[: min(ends, default=len(pattern))]
