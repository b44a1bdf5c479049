"""Who is subscribed to what in this process. One subscription at the server serves all who want the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from kizuna.store.events.feeds import Counts, Sink
from kizuna.store.events.flags import NONE, Letters

Verb = Literal["SUBSCRIBE", "PSUBSCRIBE"]


@dataclass(eq=False)
class Subscription:
    verb: Verb
    name: bytes
    sinks: dict[Sink, None] = field(default_factory=dict)

    @property
    def everywhere(self) -> bool:
        """Each server announces only its own keys; what is published reaches every node of a cluster."""
        return self.name.startswith((b"__keyspace@", b"__keyevent@"))


class Subscriptions:
    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._channels: dict[bytes, Subscription] = {}
        self._patterns: dict[bytes, Subscription] = {}
        self._is_reading = False
        self._at_end_of_read: list[Callable[[], None]] = []

    def __iter__(self) -> Iterator[Subscription]:
        yield from self._channels.values()
        yield from self._patterns.values()

    def join(self, verb: Verb, name: bytes, sink: Sink) -> Subscription:
        subscription = self._named(verb).setdefault(name, Subscription(verb, name))
        subscription.sinks[sink] = None
        return subscription

    def leave(self, subscription: Subscription, sink: Sink) -> bool:
        """Whether that was the last one, so that the servers can forget it too."""
        subscription.sinks.pop(sink, None)
        if subscription.sinks:
            return False
        self._named(subscription.verb).pop(subscription.name, None)
        return True

    def letters(self) -> Letters:
        """What the servers must have set for all who are told of keys."""
        return NONE.union(*(sink.letters for subscription in self for sink in subscription.sinks))

    def dispatch(self, push: list[Any]) -> None:
        """Hand a message to whom it concerns: ["message", channel, payload] or ["pmessage", pattern, …].

        Every event of the process passes here: two lookups and a call for each who wants it, and no task.
        """
        self._counts.received += 1
        self._is_reading = True
        wanted = self._patterns if push[0] == b"pmessage" else self._channels
        subscription = wanted.get(push[1])
        # Without one, the last reader has just left, and the server has not heard of it yet.
        if subscription is not None:
            channel, payload = push[-2], push[-1]
            for sink in subscription.sinks:
                sink.take(channel, payload)

    def soon(self, function: Callable[[], None]) -> None:
        """Call it when all messages that came at once have been handed out; in the next turn, if none are."""
        if self._is_reading:
            self._at_end_of_read.append(function)
        else:
            asyncio.get_running_loop().call_soon(function)

    def end_read(self) -> None:
        self._is_reading = False
        if self._at_end_of_read:
            functions, self._at_end_of_read = self._at_end_of_read, []
            for function in functions:
                function()

    def _named(self, verb: Verb) -> dict[bytes, Subscription]:
        return self._channels if verb == "SUBSCRIBE" else self._patterns
