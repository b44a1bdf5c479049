"""The store: every command of kizuna goes through here.

    call ──> batches that hold its keys leave first ──> topology: which link ──> link: connected, room ──> wire

A command is sent once. It is repeated only where the server said that it did not run it (MOVED, READONLY,
LOADING …), and not beyond the caller's deadline; everything else is the caller's to decide, with an error that
tells whether it may have happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from kizuna.errors import Refused, StoreError
from kizuna.settings import Settings
from kizuna.store.batching import Batcher
from kizuna.store.begun import Begun
from kizuna.store.commands import HARMLESS, check_shared, keys_of
from kizuna.store.events import Events
from kizuna.store.following import Follower
from kizuna.store.link import Link
from kizuna.store.scripts import Script
from kizuna.store.taking import Taker, Together
from kizuna.store.targets import parse_target
from kizuna.store.topology import make_dialer, make_topology
from kizuna.store.wire import Argument, Command


class Store:
    """Made and opened by `kizuna.connect`; one for a process is enough, for any number of tasks."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.target = parse_target(settings.store)
        self.dialer = make_dialer(settings, self.target)
        self._follower = Follower(settings.store)
        self.topology = make_topology(settings, self.target, self.dialer, self._follower.take)
        self._follower.topology = self.topology
        self.events = Events(self.topology, settings)
        self._timeout_s = settings.store.timeout_s
        self._batcher = Batcher(self, self.topology.group)
        self._loop: asyncio.AbstractEventLoop

    async def open(self) -> None:
        """Be connected, or raise what keeps us from it: first contact is given the time of one command."""
        self._loop = asyncio.get_running_loop()
        try:
            await self.topology.start(self._loop.time() + self._timeout_s)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Leave nothing behind. Batches that were begun get the time of one command to end; other calls fail."""
        try:
            await self._batcher.settle(self._timeout_s)
            await self.events.aclose()
        finally:
            await self._follower.aclose()
            await self.topology.aclose()
            await self._batcher.settle()

    def call(self, *command: Argument, timeout_s: float | None = None) -> asyncio.Future[Any]:
        """Send one command to the server that holds its key; await the result for its reply, as the server gave it.

        The command joins the line at the call, not at the await, so calls keep their order; except for one that the
        server did not run (its slot has moved, it is loading …), which is then tried again behind the others.
        It is sent once: OutcomeUnknown means that it may have happened, every NotSent that it did not.

        The result is a future, so it needs no task to be under way: gather, wait or await as many as you like.
        """
        # Not through `deadline`: this is the way of every command.
        return self.begin(command, self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s))

    def post(self, taker: Taker, *command: Argument, timeout_s: float | None = None) -> None:
        """`call` for those with very many commands: the taker is told of the reply, and there is no future."""
        self._begin_for(taker, command, self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s))

    def post_all(
        self,
        commands: Sequence[Command],
        then: Callable[[list[Any]], None],
        *,
        packed: bytes | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Send some commands, each to the server that holds its key; `then` is called, in the middle of reading, with
        all replies, and in the place of one that failed, the error. `packed` is all of them as they go over the wire,
        if that is known already (see `packing`)."""
        if not commands:
            then([])
            return
        deadline, together = self.deadline(timeout_s), Together(len(commands), then)
        only = self.topology.only
        if only is not None:
            self._batcher.send_all()
            only.send_all(commands, deadline, together, packed)
            return
        for number, command in enumerate(commands):
            self._begin_for(together.place(number), command, deadline)

    def call_all(
        self, commands: Sequence[Command], *, packed: bytes | None = None, timeout_s: float | None = None
    ) -> asyncio.Future[list[Any]]:
        """The same to be awaited."""
        future: asyncio.Future[list[Any]] = self._loop.create_future()

        def give(replies: list[Any]) -> None:
            if not future.done():
                future.set_result(replies)

        self.post_all(commands, give, packed=packed, timeout_s=timeout_s)
        return future

    def get(self, key: str | bytes, *, timeout_s: float | None = None) -> asyncio.Future[bytes | None]:
        """The value of a string key; what is asked for together is read together. Keeps the order, like `call`."""
        return self._batcher.get(key if isinstance(key, bytes) else key.encode(), timeout_s)

    async def call_each_primary(self, *command: Argument, timeout_s: float | None = None) -> dict[str, Any]:
        """Send one command to every primary, and return the replies by server. The first error is raised."""
        replies = await self.ask_each_primary(*command, timeout_s=timeout_s)
        for reply in replies.values():
            if isinstance(reply, StoreError):
                raise reply
        return replies

    def call_at(self, link: Link, *command: Argument, timeout_s: float | None = None) -> asyncio.Future[Any]:
        """Send one command to that very server, one of `topology.primaries()`, wherever its keys may be."""
        check_shared(command)
        self._batcher.send_all()
        return self._follower.apart(link.send(command, self.deadline(timeout_s)))

    def call_beside(self, key: str, *command: Argument, timeout_s: float | None = None) -> asyncio.Future[Any]:
        """Send one command that names no key to the server that holds this one."""
        return self.call_at(self.topology.route(("GET", key)), *command, timeout_s=timeout_s)

    async def time_s(self) -> float:
        """What time it is by the server's clock, in seconds since the epoch."""
        seconds, microseconds = await self.call("TIME")
        return int(seconds) + int(microseconds) / 1e6

    async def ask_each_primary(self, *command: Argument, timeout_s: float | None = None) -> dict[str, Any]:
        """The same for those who want to know what the others say when one does not answer: of that one, the error."""
        check_shared(command)
        self._batcher.send_all()
        deadline = self.deadline(timeout_s)
        links = self.topology.primaries()
        sent = [self._follower.apart(link.send(command, deadline)) for link in links]
        replies = await asyncio.gather(*sent, return_exceptions=True)
        return {link.describe(): reply for link, reply in zip(links, replies, strict=True)}

    def has_heard_since(self, moment: float) -> bool:
        """Whether every primary has said anything at all since then, on the loop's clock: also one that answers others
        before us lives."""
        wires = [link.wire for link in self.topology.primaries()]
        return all(wire is not None and wire.heard_at >= moment for wire in wires)

    # -- for scripts and batches --------------------------------------------------------------------------

    def deadline(self, timeout_s: float | None) -> float:
        """On the loop's clock: when a call that begins now has to be answered."""
        return self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)

    def begin(self, command: Command, deadline: float) -> asyncio.Future[Any]:
        """Put one command in the line."""
        if command[0] not in HARMLESS:
            check_shared(command)
        if self._batcher.gathering:
            self._batcher.make_way(keys_of(command))
        return self.topology.route(command).send(command, deadline)

    def _begin_for(self, taker: Taker, command: Command, deadline: float) -> None:
        if self._batcher.gathering:
            self._batcher.make_way(keys_of(command))
        # As far as the wire goes, it is a future.
        self.topology.route(command).send(command, deadline, cast("asyncio.Future[Any]", taker))

    def begin_script(self, script: Script, command: Command, deadline: float) -> Awaitable[Any]:
        """`begin` for the EVALSHA of a script. The first one on a connection brings the text along: were it refused
        as unknown, it would have to be sent again, behind what was sent after it."""
        known = self.topology.route(command).scripts
        if script.sha in known:
            reply = self.begin(command, deadline)
            return Begun(lambda: self._or_with_text(reply, script, command, deadline))
        known.add(script.sha)
        return self.begin(script.with_text(command), deadline)

    @property
    def is_idle(self) -> bool:
        only = self.topology.only
        return only is not None and only.is_idle

    def post_script(self, taker: Taker, script: Script, command: Command, deadline: float) -> None:
        """`begin_script` for a taker."""
        known = self.topology.route(command).scripts
        if script.sha in known:
            self._begin_for(_OrWithText(self, taker, script, command, deadline), command, deadline)
        else:
            known.add(script.sha)
            self._begin_for(taker, script.with_text(command), deadline)

    def batch_row(
        self,
        script: Script,
        fixed: Mapping[str, Argument],
        row: Mapping[str, Argument],
        *,
        timeout_s: float | None = None,
    ) -> asyncio.Future[Any]:
        return self._batcher.row(script, fixed, row, timeout_s)

    async def _or_with_text(self, reply: asyncio.Future[Any], script: Script, command: Command, deadline: float) -> Any:
        """A server that has lost its scripts gets the text again. That is no repetition: the script did not run."""
        try:
            return await reply
        except Refused as refusal:
            if refusal.code != "NOSCRIPT":
                raise
        return await self.begin(script.with_text(command), deadline)

    def post_with_text(self, taker: Taker, script: Script, command: Command, deadline: float) -> None:
        """The same for a taker."""
        self._begin_for(taker, script.with_text(command), deadline)


class _OrWithText(Taker):
    """Passes the reply on; but a server that has lost its scripts gets the text first."""

    __slots__ = ("_again", "_taker")

    def __init__(self, store: Store, taker: Taker, script: Script, command: Command, deadline: float) -> None:
        self._taker = taker
        self._again = (store, script, command, deadline)

    def done(self) -> bool:
        return self._taker.done()

    def set_result(self, reply: Any) -> None:
        self._taker.set_result(reply)

    def set_exception(self, error: BaseException) -> None:
        if isinstance(error, Refused) and error.code == "NOSCRIPT":
            store, script, command, deadline = self._again
            store.post_with_text(self._taker, script, command, deadline)
        else:
            self._taker.set_exception(error)
