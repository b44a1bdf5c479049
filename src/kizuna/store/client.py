"""The store: every command of kizuna goes through here.

    call ──> batches that hold its keys leave first ──> topology: which link ──> link: connected, room ──> wire

A command is sent once. It is repeated only where the server said that it did not run it (MOVED, READONLY,
LOADING …), and not beyond the caller's deadline; everything else is the caller's to decide, with an error that
tells whether it may have happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from kizuna.errors import StoreError, Unreachable
from kizuna.settings import Settings
from kizuna.store.batching import Batcher
from kizuna.store.commands import HARMLESS, check_shared, keys_of
from kizuna.store.events import Events
from kizuna.store.link import Link, backoff
from kizuna.store.places import Route
from kizuna.store.replies import did_not_run
from kizuna.store.scripts import Script
from kizuna.store.topology import make_dialer, make_topology, parse_target
from kizuna.store.wire import Argument, Command

_WITHOUT_PAUSE = frozenset({"MOVED", "ASK"})


class Store:
    """Made and opened by `kizuna.connect`; one for a process is enough, for any number of tasks."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.target = parse_target(settings.store)
        self.dialer = make_dialer(settings, self.target)
        self.topology = make_topology(settings, self.target, self.dialer)
        self.events = Events(self.topology, settings)
        self._timeout_s = settings.store.timeout_s
        self._batcher = Batcher(self, self.topology.group)
        self._loop: asyncio.AbstractEventLoop
        self._closed = False

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
        self._closed = True
        try:
            await self._batcher.settle(self._timeout_s)
            await self.events.aclose()
        finally:
            await self.topology.aclose()
            await self._batcher.settle()

    def call(self, *command: Argument, timeout_s: float | None = None) -> Coroutine[Any, Any, Any]:
        """Send one command to the server that holds its key, and return its reply as the server gave it.

        The command joins the line at the call, not at the await, so calls keep their order; except for one that the
        server did not run (its slot has moved, it is loading …), which is then tried again behind the others.
        It is sent once: OutcomeUnknown means that it may have happened, every NotSent that it did not.
        """
        return self.begin(command, timeout_s)

    def begin(self, command: Command, timeout_s: float | None = None) -> Coroutine[Any, Any, Any]:
        if command[0] not in HARMLESS:
            check_shared(command)
        if not self._batcher.is_empty:
            self._batcher.make_way(keys_of(command))
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        link = self.topology.route(command)
        return self._finish(link.send(command, deadline), command, link, deadline)

    def begin_script(
        self, script: Script, command: Command, timeout_s: float | None = None
    ) -> Coroutine[Any, Any, Any]:
        """`begin` for the EVALSHA of a script. The first one on a connection brings the text along: were it refused
        as unknown, it would have to be sent again, behind what was sent after it."""
        known = self.topology.route(command).scripts
        if script.sha not in known:
            known.add(script.sha)
            command = ("EVAL", script.source, *command[2:])
        return self.begin(command, timeout_s)

    def get(self, key: str | bytes, *, timeout_s: float | None = None) -> Coroutine[Any, Any, bytes | None]:
        """The value of a string key; what is asked for together is read together. Keeps the order, like `call`."""
        return _result(self._batcher.get(key if isinstance(key, bytes) else key.encode(), timeout_s))

    def batch_row(
        self,
        script: Script,
        fixed: Mapping[str, Argument],
        row: Mapping[str, Argument],
        *,
        timeout_s: float | None = None,
    ) -> Coroutine[Any, Any, Any]:
        return _result(self._batcher.row(script, fixed, row, timeout_s))

    async def call_each_primary(self, *command: Argument, timeout_s: float | None = None) -> dict[str, Any]:
        """Send one command to every primary, and return the replies by server. The first error is raised."""
        check_shared(command)
        self._batcher.send_all()
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        links = self.topology.primaries()
        replies = await asyncio.gather(*(link.send(command, deadline) for link in links), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        return {link.describe(): reply for link, reply in zip(links, replies, strict=True)}

    # -- inside -----------------------------------------------------------------------------------------

    async def _finish(self, reply: asyncio.Future[Any], command: Command, link: Link, deadline: float) -> Any:
        try:
            return await reply
        except StoreError as error:
            if not self._did_not_run(error, link):
                raise
            return await self._try_again(error, command, link, deadline)

    async def _try_again(self, error: StoreError, command: Command, link: Link, deadline: float) -> Any:
        """The server did not run the command; follow it to where it belongs, until the caller's time is up."""
        pauses = backoff(self.settings.store.reconnect_first_s, self.settings.store.reconnect_longest_s)
        redirections = 0
        while True:
            route = await self._learn(command, link, error, deadline)
            redirections += 1
            if error.code not in _WITHOUT_PAUSE or redirections > 3:
                pause_s = next(pauses)
                if self._loop.time() + pause_s >= deadline:
                    raise error
                await asyncio.sleep(pause_s)
            link = route.link
            try:
                if route.asking:
                    _forget(link.send(("ASKING",), deadline))
                return await link.send(command, deadline)
            except StoreError as next_error:
                if not self._did_not_run(next_error, link):
                    raise
                error = next_error

    async def _learn(self, command: Command, link: Link, error: StoreError, deadline: float) -> Route:
        try:
            async with asyncio.timeout_at(deadline):
                return await self.topology.learn(command, link, error)
        except TimeoutError:
            raise error from None

    def _did_not_run(self, error: StoreError, link: Link) -> bool:
        """The server said so; or its link was closed under us because it left the cluster."""
        return did_not_run(error) or (link.is_closed and isinstance(error, Unreachable) and not self._closed)


async def _result(future: asyncio.Future[Any]) -> Any:
    return await future


def _forget(reply: asyncio.Future[Any]) -> None:
    """An error here shows up in the command that follows."""
    reply.add_done_callback(lambda done: done.cancelled() or done.exception())
