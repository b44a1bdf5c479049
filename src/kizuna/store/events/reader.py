"""Hearing of changes: keyspace notifications and pub/sub, one connection to each primary, any number of readers.

    watch, listen ──> Subscriptions <── dispatch ── Listener ── connection to a primary
    Feed, Waiters <─────────┘                       Listener ── connection to another …

What arrives is a hint, and the key is the truth: events are lost while nobody is connected. The promise is that
nobody waits in vain because of it: subscribe, then write, then look; and whenever events may have been missed, a
LookAgain says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from kizuna.errors import KizunaError, Unreachable
from kizuna.settings import Settings
from kizuna.store.events.canary import keyspace_prefix
from kizuna.store.events.feeds import (
    Change,
    Counts,
    Feed,
    LookAgain,
    Message,
    MessageTap,
    Sink,
    Tap,
    Waiters,
    changes,
    is_pattern,
    message,
)
from kizuna.store.events.flags import NONE, letters_for
from kizuna.store.events.listening import Listener, begin, end
from kizuna.store.events.subscriptions import Subscription, Subscriptions
from kizuna.store.places import Place
from kizuna.store.topology import Topology

log = logging.getLogger("kizuna.store")


class Events:
    """`store.events`. Connects when the first one wants to hear something, and stays until it is closed."""

    def __init__(self, topology: Topology, settings: Settings) -> None:
        self.counts = Counts()
        self._topology, self._settings = topology, settings
        self._dialer = replace(topology.dialer, client_name=f"{topology.dialer.client_name}-events")
        self._prefix = keyspace_prefix(topology.dialer.database)
        self._subscriptions = Subscriptions(self.counts)
        self._listeners: dict[str, Listener] = {}
        # The one that hears what is published: on a cluster each node would tell it again.
        self._herald: Listener | None = None
        self._moved = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def watch(self, pattern: str, *, kinds: Iterable[str] = ("set",)) -> AsyncIterator[Feed[Change]]:
        """Hear of every change of this kind to a key that fits the pattern (a glob as in SCAN, or one key).

        Entered once every primary has acknowledged the subscription: nothing that is written from then on is
        missed without a LookAgain. Raises NotificationsOff where the server does not announce changes and we may not
        switch it on, PermissionDenied where we may not subscribe, other StoreErrors where no connection is made.
        """
        words = _words(kinds)
        make = changes(self._prefix, words)
        feed = Feed(make, letters_for(words.values()), self._settings.events.buffer, self.counts)
        async with self._joined(self._prefix + pattern.encode(), feed):
            yield feed

    @asynccontextmanager
    async def waiters(self, pattern: str, *, kinds: Iterable[str] = ("set",)) -> AsyncIterator[Waiters]:
        """Like `watch`, for thousands who wait for one key each that fits the pattern."""
        words = _words(kinds)
        raw = pattern.encode()
        waiters = Waiters(self._prefix, raw, words, letters_for(words.values()), self.counts)
        async with self._joined(self._prefix + raw, waiters):
            yield waiters

    @asynccontextmanager
    async def tap(
        self,
        pattern: str,
        on_changes: Callable[[list[bytes]], None],
        *,
        on_look_again: Callable[[LookAgain], None],
        on_trouble: Callable[[KizunaError], None],
        on_close: Callable[[], None] = lambda: None,
        kinds: Iterable[str] = ("set",),
    ) -> AsyncIterator[None]:
        """Like `watch`, for those who hear of very many changes, and would rather be called with all keys that were
        told at once; see `Tap`."""
        words = _words(kinds)
        letters = letters_for(words.values())
        soon = self._subscriptions.soon
        tap = Tap(self._prefix, words, letters, self.counts, soon, on_changes, on_look_again, on_trouble, on_close)
        async with self._joined(self._prefix + pattern.encode(), tap):
            yield

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Feed[Message]]:
        """Hear what is published on a channel, or on every channel that fits a pattern."""
        feed = Feed(message, NONE, self._settings.events.buffer, self.counts)
        async with self._joined(channel.encode(), feed):
            yield feed

    @asynccontextmanager
    async def tap_messages(self, channel: str, on_message: Callable[[bytes, bytes], None]) -> AsyncIterator[None]:
        """Like `listen`, for those who would rather be called, and do not mind a message that is missed."""
        async with self._joined(channel.encode(), MessageTap(self.counts, on_message)):
            yield

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def seconds_since_canary(self) -> float | None:
        """How long ago the connection that is worst off proved that it hears; None if nobody listens."""
        if not self._listeners:
            return None
        now = asyncio.get_running_loop().time()
        return max(now - listener.proven_at for listener in self._listeners.values())

    async def aclose(self) -> None:
        """Close every connection; who iterates comes to an end, who waits gets an error. Harmless when repeated."""
        self._closed = True
        if self._following is not None:
            await end(self._following)
        for listener in self._listeners.values():
            await listener.aclose()
        self._listeners.clear()
        for subscription in self._subscriptions:
            for sink in subscription.sinks:
                sink.close()

    # -- inside -----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _joined(self, name: bytes, sink: Sink) -> AsyncIterator[None]:
        subscription = self._subscriptions.join("PSUBSCRIBE" if is_pattern(name) else "SUBSCRIBE", name, sink)
        try:
            await self._subscribe(subscription, sink)
            sink.live = True
            yield
        finally:
            sink.close()
            if self._subscriptions.leave(subscription, sink):
                for listener in self._listeners.values():
                    listener.forget(subscription)

    async def _subscribe(self, subscription: Subscription, sink: Sink) -> None:
        deadline = asyncio.get_running_loop().time() + self._settings.store.timeout_s
        if not self._listeners:
            await self._begin()
        asked: list[Listener] = []
        # The primaries may become others while we wait for them.
        while (wanted := self._who_wants(subscription)) != asked:
            await self._ensure_at(wanted, subscription, sink, deadline)
            asked = wanted
        if self._closed:
            raise Unreachable("the store was closed", "store.events", "connect again")

    async def _ensure_at(
        self, listeners: list[Listener], subscription: Subscription, sink: Sink, deadline: float
    ) -> None:
        ensuring = (listener.ensure(subscription, sink.letters, deadline) for listener in listeners)
        outcomes = await asyncio.gather(*ensuring, return_exceptions=True)
        for listener, outcome in zip(listeners, outcomes, strict=True):
            # One that has left meanwhile is no loss.
            if isinstance(outcome, BaseException) and listener in self._listeners.values():
                raise outcome

    async def _begin(self) -> None:
        if not self._topology.places():
            await self._topology.refresh()
        if self._closed:
            raise Unreachable("the store was closed", "store.events", "connect again")
        await self._follow_once()
        if self._following is None:
            self._following = begin(self._follow(), "kizuna events")

    def _wants(self, listener: Listener, subscription: Subscription) -> bool:
        return subscription.everywhere or listener is self._herald

    def _who_wants(self, subscription: Subscription) -> list[Listener]:
        return [listener for listener in self._listeners.values() if self._wants(listener, subscription)]

    async def _follow(self) -> None:
        """Listen wherever there is a primary, also when there is another one than before."""
        while True:
            await self._pause()
            try:
                await self._topology.refresh()
            except KizunaError as error:
                log.warning("where to listen is not known", extra={"error": str(error)})
            else:
                await self._follow_once()

    async def _pause(self) -> None:
        """Shorter while a server is away, for another may have taken its place."""
        all_there = all(listener.is_connected for listener in self._listeners.values())
        events, store = self._settings.events, self._settings.store
        pause_s = events.canary_every_s if all_there else min(events.canary_every_s, store.reconnect_longest_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._moved.wait()
        self._moved.clear()

    async def _follow_once(self) -> None:
        places = {place.name: place for place in self._topology.places()}
        for name in [name for name in self._listeners if name not in places]:
            # Closed first: were we cancelled in between, aclose() must find it.
            await self._listeners[name].aclose()
            del self._listeners[name]
        for name, place in places.items():
            if name in self._listeners:
                self._listeners[name].place = place
            else:
                self._listeners[name] = self._start_listening(place)
        self._choose_herald()

    def _start_listening(self, place: Place) -> Listener:
        listener = Listener(
            place,
            self._dialer,
            self._settings,
            self._subscriptions,
            self.counts,
            wants=self._wants,
            on_moved=self._moved.set,
        )
        listener.start()
        return listener

    def _choose_herald(self) -> None:
        """Stay with the one we have as long as it hears; the next catches up in its next round."""
        listeners = list(self._listeners.values())
        if self._herald in listeners and self._herald.is_connected:
            return
        self._herald = next((listener for listener in listeners if listener.is_connected), listeners[0])


def _words(kinds: Iterable[str]) -> dict[bytes, str]:
    """As the server writes them, and as we hand them on."""
    words = {kind.encode(): kind for kind in kinds}
    if not words:
        raise ValueError("kinds is empty: nothing would ever be heard")
    return words
