"""A thread with an event loop and a connection of its own.

What keeps a lease, a lock or a process alive runs there: in the program's own loop, one function that forgets to
await would be taken for death. Only code that holds the interpreter itself can still hold it up.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from kizuna.errors import KizunaError, Unreachable
from kizuna.store.client import Store

if TYPE_CHECKING:
    from kizuna.settings import Settings

log = logging.getLogger("kizuna.coordination")

Step = Callable[[Store], Awaitable[None]]


class Background:
    """Started when first used, ended by `aclose`; one for each Kizuna."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._starting = asyncio.Lock()
        self._thread: _Thread | None = None
        self._closed = False

    async def repeat(self, step: Step, *, every_s: float, name: str) -> Repetition:
        """Call `step` with the background's store, in its thread, the first time `every_s` from now.

        A KizunaError in it is logged, and the next one is tried as planned. The first to be repeated raises what keeps
        the background from connecting; after `aclose`, all raise Unreachable.
        """
        async with self._starting:
            if self._closed:
                raise Unreachable("the background was closed", "this process", "connect again")
            if self._thread is None:
                self._thread = await self._start()
            return self._thread.begin(step, every_s, name)

    async def aclose(self) -> None:
        """End everything that is still repeated, and the thread. Harmless when repeated."""
        self._closed = True
        async with self._starting:
            thread, self._thread = self._thread, None
            if thread is not None:
                await thread.end()

    async def _start(self) -> _Thread:
        thread = _Thread(Store(self._settings))
        try:
            await thread.start()
        except BaseException:
            await thread.end()
            raise
        return thread


class Repetition:
    """A step that is repeated in the background until `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, step: Step, every_s: float, name: str) -> None:
        self._loop, self._step, self._every_s, self._name = loop, step, every_s, name
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """No step begins after this; one that is under way is cancelled. Harmless when repeated, or after the end."""
        self._stopped = True
        _call_in(self._loop, self._cancel)

    # -- in the thread ----------------------------------------------------------------------------------

    def begin(self, store: Store, tasks: set[asyncio.Task[None]]) -> None:
        if not self._stopped:
            self._task = self._loop.create_task(self._repeat(store), name=f"kizuna {self._name}")
            tasks.add(self._task)
            self._task.add_done_callback(tasks.discard)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _repeat(self, store: Store) -> None:
        due = self._loop.time()
        while not self._stopped:
            # From due time to due time, so that slow steps do not add up; but what was missed is not made up for.
            due = max(due + self._every_s, self._loop.time())
            await asyncio.sleep(due - self._loop.time())
            # Asked again here: a stop need not wait for this loop to hear of it.
            if not self._stopped:
                await self._try(store)

    async def _try(self, store: Store) -> None:
        try:
            await self._step(store)
        except KizunaError as error:
            log.warning("background step failed", extra={"step": self._name, "error": str(error)})
        except Exception:
            log.exception("background step failed", extra={"step": self._name})


class _Thread:
    """Everything that one run of the thread has to itself, so that a next one cannot meet what is left of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Made here, so that it can be spoken to before the thread has come to run it.
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._ready: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._tasks: set[asyncio.Task[None]] = set()
        # A daemon, so that a program which ends without closing is not kept alive by it.
        self._thread = threading.Thread(target=self._work, name="kizuna-background", daemon=True)

    async def start(self) -> None:
        """Return when it is connected, or raise what keeps it from that."""
        # Running from now on: were it cancelled by whoever stops waiting, the thread could not say that it is ready.
        self._ready.set_running_or_notify_cancel()
        self._thread.start()
        await asyncio.wrap_future(self._ready)

    def begin(self, step: Step, every_s: float, name: str) -> Repetition:
        repetition = Repetition(self._loop, step, every_s, name)
        _call_in(self._loop, repetition.begin, self._store, self._tasks)
        return repetition

    async def end(self) -> None:
        """Return when nothing is left of it; it ends also if nobody waits for that."""
        if self._thread.ident is None:  # the system had no thread for us
            self._loop.close()
            return
        _call_in(self._loop, self._over.set)
        # Not in a thread of the loop's: who is told to end at once would wait for that one when the loop is closed.
        await asyncio.shield(asyncio.wrap_future(self._ended))
        self._thread.join()

    # -- in the thread ----------------------------------------------------------------------------------

    def _work(self) -> None:
        # Running from the start, so that nobody who stops waiting can cancel it.
        self._ended.set_running_or_notify_cancel()
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        finally:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        over = asyncio.create_task(self._over.wait())
        opening = asyncio.create_task(self._store.open())
        # Whoever ends us during the start does not wait for a server that does not answer.
        await asyncio.wait([over, opening], return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
        if self._tell_ready(opening):
            await over
            await self._cancel_all()
            await self._store.aclose()
        over.cancel()

    def _tell_ready(self, opening: asyncio.Task[None]) -> bool:
        error = asyncio.CancelledError() if opening.cancelled() else opening.exception()
        if error is None:
            self._ready.set_result(None)
        else:
            self._ready.set_exception(error)
        return error is None

    async def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    """In the loop of another thread. One that is closed has no need of it."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)
