"""Channels: typed messages for whoever listens now.

    requests = k.channels.channel("mirin", "requests", type=Request)      poppo:channel:mirin:requests
    await requests.publish(Request(…))

    async with requests.subscribe() as messages:
        async for request in messages:
            …

On the server it is plain pub/sub, so others take part with PUBLISH and SUBSCRIBE. Who is not connected misses what is
published: what must not be missed goes through `k.channels.durable(…)`. A channel is no key and has no slot: with
shards, too, its name begins with the plain root.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

from kizuna.codecs import JSON, Codec, json_of
from kizuna.coordination.keys import CHANNEL, CHANNEL_CURSOR, CHANNEL_LOG
from kizuna.coordination.namespace import Name, joined
from kizuna.coordination.roots import roots_of
from kizuna.errors import Undecodable, WrongValue
from kizuna.store.events import LookAgain
from kizuna.store.scanning import names_of_all

if TYPE_CHECKING:
    from kizuna.coordination.channels.durable import DurableChannel
    from kizuna.store.client import Store
    from kizuna.store.events import Feed
    from kizuna.store.events import Message as RawMessage
    from kizuna.store.keys import Roots

log = logging.getLogger("kizuna.coordination")

T = TypeVar("T")

LONGEST_BYTES = 1024 * 1024
"""Of one message. The server holds it for each subscriber that is slow, and cuts off who is too slow."""
KEEP = 10_000


class Message(NamedTuple, Generic[T]):
    channel: str
    """Its name below the root, `mirin:requests`."""
    value: T


class Missed(NamedTuple):
    """Messages may have been published that we did not hear: the connection was away, or we were too slow."""

    reason: str


class Garbled(NamedTuple):
    """Somebody published what is not in the channel's format."""

    channel: str
    error: Undecodable


class Log(NamedTuple):
    channel: str
    length: int
    readers: dict[str, int | None]
    """How many messages each of them has not done yet; None where that cannot be told."""


class Channels:
    """`k.channels`. A name is given in parts, or as one text with `:` between them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @overload
    def channel(self, *name: Name, type: type[T], longest_bytes: int = LONGEST_BYTES) -> Channel[T]: ...
    @overload
    def channel(self, *name: Name, codec: Codec = JSON, longest_bytes: int = LONGEST_BYTES) -> Channel[Any]: ...
    def channel(
        self,
        *name: Name,
        type: Any = None,  # noqa: A002 - as it reads best where it is called: type=Request
        codec: Codec = JSON,
        longest_bytes: int = LONGEST_BYTES,
    ) -> Channel[Any]:
        """Messages are JSON that is checked against `type`, or whatever the codec says."""
        format_ = codec if type is None else json_of(type)
        return Channel(self._store, self._roots.root, joined(name), format_, longest_bytes)

    @overload
    def matching(self, *pattern: Name, type: type[T]) -> Listening[T]: ...
    @overload
    def matching(self, *pattern: Name, codec: Codec = JSON) -> Listening[Any]: ...
    def matching(
        self,
        *pattern: Name,
        type: Any = None,  # noqa: A002
        codec: Codec = JSON,
    ) -> Listening[Any]:
        """All channels whose names fit a glob, `events:*` say, to be subscribed to; `all()` names the channel of each
        message."""
        return Listening(self._store, self._roots.root, joined(pattern), codec if type is None else json_of(type))

    @overload
    def durable(
        self, *name: Name, type: type[T], keep: int = KEEP, longest_bytes: int = LONGEST_BYTES
    ) -> DurableChannel[T]: ...
    @overload
    def durable(
        self, *name: Name, codec: Codec = JSON, keep: int = KEEP, longest_bytes: int = LONGEST_BYTES
    ) -> DurableChannel[Any]: ...
    def durable(
        self,
        *name: Name,
        type: Any = None,  # noqa: A002
        codec: Codec = JSON,
        keep: int = KEEP,
        longest_bytes: int = LONGEST_BYTES,
    ) -> DurableChannel[Any]:
        """A channel whose last `keep` messages, give or take a hundred, stay on the server for its readers."""
        from kizuna.coordination.channels.durable import DurableChannel

        live = self.channel(*name, codec=codec if type is None else json_of(type), longest_bytes=longest_bytes)
        return DurableChannel(self._store, self._roots.of(live.name), live, keep=keep)

    async def active(self) -> dict[str, int]:
        """Channels that somebody listens to now, with how many do; of a cluster, the connections of all its servers.
        Who listens to a pattern is not seen."""
        counts: dict[str, int] = {}
        glob = CHANNEL.glob(self._roots.root)
        for names in (await self._store.call_each_primary("PUBSUB", "CHANNELS", glob)).values():
            for raw in names:
                parsed = CHANNEL.parse(self._roots.root, raw)
                if parsed is not None:
                    counts[parsed["channel"]] = 0
        for name in counts:
            key = CHANNEL.build(self._roots.root, channel=name)
            for _, listeners in (await self._store.call_each_primary("PUBSUB", "NUMSUB", key)).values():
                counts[name] += listeners
        return dict(sorted(counts.items()))

    async def logs(self) -> list[Log]:
        """The durable channels there are, in the order of their names."""
        readers: dict[str, dict[str, int | None]] = {}
        async for names in names_of_all(self._store, self._roots, CHANNEL_LOG):
            readers[names["channel"]] = {}
        async for names in names_of_all(self._store, self._roots, CHANNEL_CURSOR):
            channel, reader = names["channel"], names["reader"]
            readers.setdefault(channel, {})[reader] = await self.durable(channel).lag(reader)
        return [Log(name, await self.durable(name).length(), readers[name]) for name in sorted(readers)]

    @cached_property
    def _roots(self) -> Roots:
        return roots_of(self._store)


class Listening(Generic[T]):
    """One channel, or all that fit a pattern, to be subscribed to."""

    def __init__(self, store: Store, root: str, name: str, codec: Codec) -> None:
        self.name = name
        self._store, self._root, self._codec = store, root, codec
        self.full_name = _full_name(root, name)
        """As it stands on the server."""

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[Subscription[T]]:
        """Entered when the server has acknowledged it: what is published from then on is heard, or else Missed is."""
        async with self._store.events.listen(self.full_name) as feed:
            yield Subscription(feed, self._root, self._codec)


class Channel(Listening[T]):
    """A channel to publish on and to subscribe to."""

    def __init__(self, store: Store, root: str, name: str, codec: Codec, longest_bytes: int) -> None:
        CHANNEL.build(root, channel=name)
        super().__init__(store, root, name, codec)
        self._longest_bytes = longest_bytes

    async def publish(self, message: T) -> int:
        """Send it to whoever listens now, and return how many that are, as far as the server we asked can tell: those
        at other servers of a cluster are not among them. It is sent once: after OutcomeUnknown it may have been heard.
        """
        heard: int = await self._store.call("PUBLISH", self.full_name, self.encode(message))
        return heard

    def encode(self, message: T) -> bytes:
        """WrongValue for what is too long, before anything is sent; TypeError for what has no such format."""
        payload = self._codec.encode(message)
        if len(payload) > self._longest_bytes:
            expected = f"{self._longest_bytes} at most: keep it in a key, and send the name of the key"
            raise WrongValue(f"a message on channel {self.name}", f"{len(payload)} bytes long", expected)
        return payload

    def decode(self, payload: bytes) -> T:
        value: T = self._codec.decode(payload)
        return value


class Subscription(Generic[T]):
    """Iterate over it for the values. What could not be read, and that something may have been missed, is logged and
    counted; who wants to act on it iterates over `all()` instead."""

    def __init__(self, feed: Feed[RawMessage], root: str, codec: Codec) -> None:
        self._feed, self._codec = feed, codec
        self._start = len(CHANNEL.glob(root)) - 1
        self.missed = 0
        """How often something may have been missed."""
        self.garbled = 0
        """How many messages could not be read."""

    async def __aiter__(self) -> AsyncIterator[T]:
        async for item in self.all():
            match item:
                case Message(value=value):
                    yield value
                case Missed(reason):
                    log.warning("messages may have been missed", extra={"reason": reason})
                case Garbled(channel, error):
                    log.warning("message not read", extra={"channel": channel, "error": str(error)})

    async def all(self) -> AsyncIterator[Message[T] | Missed | Garbled]:
        async for event in self._feed:
            yield self._item(event)

    async def next(self, *, timeout_s: float | None = None) -> Message[T] | Missed | Garbled | None:
        """One item, or None if none came in that time."""
        event = await self._feed.next(timeout_s=timeout_s)
        return None if event is None else self._item(event)

    def _item(self, event: RawMessage | LookAgain) -> Message[T] | Missed | Garbled:
        if isinstance(event, LookAgain):
            self.missed += 1
            return Missed(event.reason)
        channel = event.channel[self._start :]
        try:
            return Message(channel, self._codec.decode(event.payload))
        except Undecodable as error:
            self.garbled += 1
            return Garbled(channel, error)


def _full_name(root: str, name: str) -> str:
    # A glob has characters that no channel has, and is checked for the rest of what would be wrong with it.
    CHANNEL.build(root, channel=name.translate(_GLOB_TO_PLAIN))
    return CHANNEL.glob(root)[:-1] + name


_GLOB_TO_PLAIN = {ord(character): "x" for character in "*?[]^"}
