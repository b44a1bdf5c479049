"""Follows commands that a server did not run to where they belong.

    MOVED, ASK                 to the node that has the slot now
    READONLY, MASTERDOWN       to whoever is the primary now
    LOADING, TRYAGAIN, BUSY …  to the same server, a little later
    its node left the cluster  to whoever has the slot now

A command is sent once; only these answers say that it did not run, so only after these is it sent again, and not
beyond its deadline. Whoever called holds one future all the time.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kizuna.errors import KizunaError, NotSent, StoreError, Unreachable
from kizuna.settings import StoreSettings
from kizuna.store.link import Link, backoff
from kizuna.store.places import Route
from kizuna.store.replies import did_not_run
from kizuna.store.topology import Topology
from kizuna.store.wire import Command, fail

_WITHOUT_PAUSE = frozenset({"MOVED", "ASK"})


class Follower:
    def __init__(self, settings: StoreSettings) -> None:
        self.topology: Topology
        """Set by the store: the two know each other."""
        self._settings = settings
        self._tasks: set[asyncio.Task[None]] = set()
        self._apart: set[asyncio.Future[Any]] = set()
        self._closed = False

    def apart(self, reply: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """Do not follow this one: who sent it wants the answer of that very server."""
        self._apart.add(reply)
        reply.add_done_callback(self._apart.discard)
        return reply

    def take(
        self, link: Link, future: asyncio.Future[Any], command: Command, deadline: float, error: StoreError
    ) -> bool:
        """Whether the command did not run and is being followed: then the future will have its reply or its error."""
        if self._closed or future in self._apart or not _can_follow(error, link):
            return False
        task = asyncio.get_running_loop().create_task(self._follow(future, command, link, deadline, error))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        future.add_done_callback(lambda done: done.cancelled() and task.cancel())
        return True

    async def aclose(self) -> None:
        """From now on nothing is followed; what is under way fails with what the server said last."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- inside -----------------------------------------------------------------------------------------

    async def _follow(
        self, future: asyncio.Future[Any], command: Command, link: Link, deadline: float, error: StoreError
    ) -> None:
        try:
            reply = await self._try_again(command, link, deadline, error)
        except asyncio.CancelledError:
            if not future.done():
                fail(future, error)
            raise
        except KizunaError as failure:
            if not future.done():
                fail(future, failure)
        else:
            if not future.done():
                future.set_result(reply)

    async def _try_again(self, command: Command, link: Link, deadline: float, error: StoreError) -> Any:
        pauses = backoff(self._settings.reconnect_first_s, self._settings.reconnect_longest_s)
        tries = 0
        while True:
            route = await self._learn(command, link, error, deadline)
            tries += 1
            if error.code not in _WITHOUT_PAUSE or tries > 3:
                pause_s = next(pauses)
                if asyncio.get_running_loop().time() + pause_s >= deadline:
                    raise error
                await asyncio.sleep(pause_s)
            link = route.link
            try:
                if route.asking:
                    # If this fails, so does the command behind it.
                    self.apart(link.send(("ASKING",), deadline))
                return await self.apart(link.send(command, deadline))
            except StoreError as next_error:
                if isinstance(next_error, NotSent) and asyncio.get_running_loop().time() >= deadline:
                    # The last try never left: what the server has said is all that is known.
                    raise error from next_error
                if not _can_follow(next_error, link):
                    raise
                error = next_error

    async def _learn(self, command: Command, link: Link, error: StoreError, deadline: float) -> Route:
        try:
            async with asyncio.timeout_at(deadline):
                return await self.topology.learn(command, link, error)
        except TimeoutError:
            raise error from None


def _can_follow(error: StoreError, link: Link) -> bool:
    """The server said "not I" or "not now"; or the link was closed before it was sent, as its node had left."""
    return did_not_run(error) or (link.is_closed and isinstance(error, Unreachable))
