"""One connection on which the events of one primary arrive; and again and again the proof that they do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from collections.abc import Set as AbstractSet
from typing import Any

from kizuna.errors import (
    KizunaError,
    OutcomeUnknown,
    Refused,
    SignInRefused,
    StoreError,
    TlsRefused,
)
from kizuna.settings import Settings
from kizuna.store.dialing import Dialer
from kizuna.store.events.canary import NEEDS_ANOTHER_CONNECTION, Canary, Proof
from kizuna.store.events.feeds import Counts, Sink
from kizuna.store.events.flags import NONE, Letters
from kizuna.store.events.subscriptions import Subscription, Subscriptions
from kizuna.store.link import Link
from kizuna.store.places import Place
from kizuna.store.replies import answered
from kizuna.store.wire import Wire

log = logging.getLogger("kizuna.store")

# A deadline is a little less than the whole time: it was counted before the connection was asked for.
_SLACK_S = 0.05
_UNDO = {"SUBSCRIBE": "UNSUBSCRIBE", "PSUBSCRIBE": "PUNSUBSCRIBE"}


class Listener:
    """`place` is where it listens; on a cluster the slot in it may change while the server is the same."""

    def __init__(
        self,
        place: Place,
        dialer: Dialer,
        settings: Settings,
        subscriptions: Subscriptions,
        counts: Counts,
        *,
        wants: Callable[[Listener, Subscription], bool],
        on_moved: Callable[[], None],
    ) -> None:
        self.place = place
        self.proven_at = asyncio.get_running_loop().time()
        """When, on the loop's clock, it last proved that it hears, or began."""
        self._events = settings.events
        self._subscriptions, self._counts = subscriptions, counts
        self._wants = wants
        self._canary = Canary(settings, dialer.database, on_moved)
        self._prepare_s, self._silence_s = dialer.connect_timeout_s, dialer.silence_s
        self._link = Link(
            place.locate,
            dialer,
            first_s=settings.store.reconnect_first_s,
            longest_s=settings.store.reconnect_longest_s,
            on_push=self._take,
            on_read=subscriptions.end_read,
            on_connected=self._prepare,
        )
        self._wire: Wire | None = None
        self._acknowledged: set[Subscription] = set()
        """By the server, on the present wire."""
        self._proven: Letters = NONE
        self._proof = Proof()
        self._is_known_to_be_off = False
        self._sign_in_refused = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        return self._link.wire is not None

    def start(self) -> None:
        self._task = begin(self._keep_proving(), "kizuna canary")

    async def aclose(self) -> None:
        if self._task is not None:
            await end(self._task)
        await self._link.aclose()
        for sink in self._sinks():
            for trouble in ("connection", "subscription", "flags"):
                sink.recover(self._source(trouble))

    async def ensure(self, subscription: Subscription, letters: Letters, deadline: float) -> None:
        """Return once the server has acknowledged the subscription, and announces what the letters stand for."""
        loop = asyncio.get_running_loop()
        while True:
            wire = await self._link.connected(deadline)
            began = loop.time()
            try:
                await self._ensure_on(wire, subscription, letters, deadline)
            except StoreError as error:
                if error.code in NEEDS_ANOTHER_CONNECTION:
                    wire.abort(f"this server takes no writes now ({error.code})")
                elif isinstance(error, OutcomeUnknown) and loop.time() - began >= self._silence_s - _SLACK_S:
                    # Nothing that takes long is asked for here: whoever tries again needs another connection.
                    wire.abort(f"a subscription was not acknowledged ({error.what})")
                # Cut off in between: the next connection may do. But no longer than the caller waits.
                if wire.lost is None or loop.time() >= deadline:
                    raise
            else:
                return

    def forget(self, subscription: Subscription) -> None:
        """The last reader has left."""
        self._acknowledged.discard(subscription)
        if self._wire is not None and self._wire.lost is None:
            deadline = asyncio.get_running_loop().time() + self._prepare_s
            reply = self._wire.send((_UNDO[subscription.verb], subscription.name), deadline)
            # Nobody waits for it; if the connection breaks before it is answered, it is forgotten as well.
            reply.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def prove(self) -> None:
        """One round of the canary."""
        if self._sign_in_refused:
            return  # not repeated by itself: that locks accounts. Who enters next tries again.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._events.canary_timeout_s
        try:
            wire = await self._link.connected(deadline)
        except (SignInRefused, TlsRefused) as error:
            self._sign_in_refused = True
            self._fail(self._sinks(), "connection", error)
            return
        except KizunaError as error:
            self._missed(error)
            return
        try:
            await self._catch_up(wire, deadline)
        except StoreError as error:
            self._missed(error)
            wire.abort(f"the canary was not heard ({error.what})")

    # -- inside -----------------------------------------------------------------------------------------

    async def _keep_proving(self) -> None:
        while True:
            await self.prove()
            await asyncio.sleep(self._events.canary_every_s)

    def _missed(self, error: KizunaError) -> None:
        self._counts.canary_failures += 1
        log.warning("canary not heard", extra={"place": self.place.name, "error": str(error)})

    def _take(self, push: list[Any]) -> None:
        # Every event of the process passes here.
        if push[-2].startswith(self._canary.family):
            self._canary.take(push)
        else:
            self._subscriptions.dispatch(push)

    async def _prepare(self, wire: Wire) -> None:
        """On each new connection, before anybody else gets it."""
        self._wire, self._acknowledged, self._proven = wire, set(), NONE
        self._canary.forget_connection()
        self._sign_in_refused = False
        # Before they are told to look again: that means that they hear.
        self._recover(self._sinks(), "connection")
        await self._catch_up(wire, asyncio.get_running_loop().time() + self._prepare_s)
        if self._link.connections:
            self._counts.reconnects += 1

    async def _catch_up(self, wire: Wire, deadline: float) -> None:
        """Subscribe to what is not acknowledged yet, prove that it is announced, then tell who missed something."""
        resumed = await self._subscribe_missing(wire, deadline)
        await self._prove_on(wire, deadline, resumed)

    async def _subscribe_missing(self, wire: Wire, deadline: float) -> set[Subscription]:
        for subscription in [s for s in self._acknowledged if not self._is_wanted(s)]:
            self.forget(subscription)
        missing = [s for s in filter(self._is_wanted, self._subscriptions) if s not in self._acknowledged]
        replies = await asyncio.gather(
            *(wire.send((s.verb, s.name), deadline) for s in missing), return_exceptions=True
        )
        resumed = set()
        for subscription, reply in zip(missing, replies, strict=True):
            if isinstance(reply, Refused):
                self._fail(list(subscription.sinks), "subscription", reply)
            elif isinstance(reply, BaseException):
                raise reply
            else:
                self._recover(list(subscription.sinks), "subscription")
                self._note_acknowledged(subscription)
                resumed.add(subscription)
        return resumed

    async def _ensure_on(self, wire: Wire, subscription: Subscription, letters: Letters, deadline: float) -> None:
        if subscription not in self._acknowledged:
            await wire.send((subscription.verb, subscription.name), deadline)
            self._note_acknowledged(subscription)
        if not letters <= self._proven:
            await self._prove_on(wire, deadline)
        reason = self._proof.reason
        if reason is not None and letters & self._proof.missing:
            raise type(reason)(*reason.args)

    def _note_acknowledged(self, subscription: Subscription) -> None:
        # Without readers it has been forgotten while the acknowledgement was on its way.
        if subscription.sinks:
            self._acknowledged.add(subscription)

    async def _prove_on(self, wire: Wire, deadline: float, resumed: AbstractSet[Subscription] = frozenset()) -> None:
        """Find out whether all that is needed is announced, and tell those whom it concerns."""
        needed = self._subscriptions.letters()
        if needed:
            proof = await self._canary.prove(wire, needed, self.place.slot, deadline)
        else:
            await answered(wire.send(("PING",), deadline))
            proof = Proof()
        before, self._proof, self._proven = self._proof, proof, needed - proof.missing
        if proof.reason is None:
            self.proven_at = asyncio.get_running_loop().time()
        else:
            self._counts.canary_failures += 1
        if needed:
            self._log_if_news(proof)
        # Only now, when nothing more can be missed: who looks earlier may look in vain, and then wait in vain.
        self._tell(resumed, (before.missing | proof.mended) - proof.missing, wire.server)

    def _log_if_news(self, proof: Proof) -> None:
        """Whoever polls tries again and again whether changes are announced by now: that is one line, and not many."""
        if proof.reason is not None and not self._is_known_to_be_off:
            log.warning("changes are not announced", extra={"place": self.place.name, "error": str(proof.reason)})
        self._is_known_to_be_off = proof.reason is not None

    def _tell(self, resumed: AbstractSet[Subscription], announced_again: Letters, server: str) -> None:
        proof = self._proof
        for subscription in filter(self._is_wanted, self._subscriptions):
            for sink in subscription.sinks:
                if proof.reason is not None and sink.letters & proof.missing:
                    sink.fail(self._source("flags"), proof.reason)
                    continue
                sink.recover(self._source("flags"))
                if subscription in resumed:
                    sink.look_again(f"listening at {server} began anew")
                elif sink.letters & announced_again:
                    sink.look_again(f"{server} had not announced changes for a while")

    def _is_wanted(self, subscription: Subscription) -> bool:
        return self._wants(self, subscription)

    def _sinks(self) -> list[Sink]:
        """Those who hear through this listener."""
        return [sink for s in filter(self._is_wanted, self._subscriptions) for sink in s.sinks]

    def _fail(self, sinks: list[Sink], trouble: str, error: KizunaError) -> None:
        for sink in sinks:
            sink.fail(self._source(trouble), error)

    def _recover(self, sinks: list[Sink], trouble: str) -> None:
        for sink in sinks:
            sink.recover(self._source(trouble))

    def _source(self, trouble: str) -> str:
        return f"{self.place.name} {trouble}"


def begin(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """A task that is not meant to end: should it fail, that is in the log at once, and raised by `end`."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


async def end(task: asyncio.Task[None]) -> None:
    """Cancel it and wait until it is gone; if it had failed before, raise that."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("listening broke off", extra={"task": task.get_name()}, exc_info=error)
