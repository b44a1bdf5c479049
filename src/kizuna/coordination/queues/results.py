"""Waiting for results without asking again and again.

    wait(id) ── subscribe once ── look: is it there, or will it never be? ──> future in `_waiting`
    finished channel: ids ──> those that somebody waits for are fetched ────> the future has its result
    LookAgain             ──> everything that somebody waits for is looked at

What is to be looked at gathers for one turn of the loop, and travels as one call.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kizuna.errors import KizunaError, TaskCancelled, TaskFailed, TaskUnknown
from kizuna.store.events.feeds import Feed, LookAgain, Message
from kizuna.store.link import copy_of
from kizuna.store.repeating import until_known
from kizuna.store.scripts import MOST_ROWS, Script
from kizuna.store.wire import fail

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kizuna.codecs import Codec
    from kizuna.coordination.queues.group_keys import GroupKeys
    from kizuna.coordination.queues.tasks import Task
    from kizuna.store.client import Store

look_at_tasks = Script.load(__package__, "look_at_tasks")

# The last resort, should a notice be lost on a connection that says it hears.
_LOOK_ANYWAY_S = 15.0
REMEMBERED = 10_000
"""Finished tasks that nobody waits for yet, and that are remembered in case somebody will."""

_ENDED = frozenset({b"done", b"dead", b"cancelled", b"unknown"})
_NEVER = float("inf")


class _Waiter(NamedTuple):
    future: asyncio.Future[Any]
    deadline: float


class Heard:
    """The ids of tasks that were named as finished a short while ago."""

    def __init__(self) -> None:
        self.generation = 0
        self._recent: set[str] = set()
        self._older: set[str] = set()

    def take(self, ids: list[str]) -> None:
        if len(self._recent) > REMEMBERED:
            self._older, self._recent = self._recent, set()
            self.generation += 1
        self._recent.update(ids)

    def missed(self) -> None:
        """Something may not have been heard: nothing that was asked for before can be relied on."""
        self.generation += 2

    def excludes(self, id_: str, since: int) -> bool:
        """Whether the task has certainly not been named since that generation."""
        return since >= self.generation - 1 and id_ not in self._recent and id_ not in self._older


class _Looks:
    """Gathers ids for one turn of the loop, and hands them to one call."""

    def __init__(self, look: Callable[[list[str]], Awaitable[None]]) -> None:
        self._look = look
        self._ids: dict[str, None] = {}
        self._under_way: set[asyncio.Future[None]] = set()

    def add(self, id_: str) -> None:
        if not self._ids:
            asyncio.get_running_loop().call_soon(self._begin)
        self._ids[id_] = None

    def _begin(self) -> None:
        ids, self._ids = list(self._ids), {}
        task = asyncio.ensure_future(self._look(ids))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


class TaskResults:
    """The results of one group, for any number of tasks that wait. Listens from the first wait on."""

    def __init__(self, store: Store, keys: GroupKeys, codec: Codec) -> None:
        self.group = keys.group
        self._store, self._keys, self._codec = store, keys, codec
        self._waiting: dict[str, list[_Waiter]] = {}
        self._looks, self._fetches = _Looks(self._look_and_tell), _Looks(self._fetch_and_tell)
        self._heard = Heard()
        self._is_hearing = False
        self._ready: asyncio.Future[None] | None = None
        self._hearing: asyncio.Task[None]
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER

    @property
    def since(self) -> int:
        """For `wait`, from before the task was pushed: what ends from then on is heard. -1 while nobody listens."""
        return self._heard.generation if self._is_hearing else -1

    async def wait(self, id_: str, timeout_s: float | None = None, since: int = -1) -> Any:
        """TaskFailed, TaskCancelled or TaskUnknown if there will be no result; TimeoutError after that time."""
        if not self._is_hearing:
            await self._listen_within(timeout_s)
        waiter = self._begin_wait(id_, self._deadline(timeout_s), since)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            self._forget(id_, waiter)
            raise

    async def wait_many(self, tasks: Sequence[Task], timeout_s: float | None = None) -> list[Any]:
        """In their order, and of one that has no result the error instead; without a task of the loop for each."""
        if not self._is_hearing:
            await self._listen_within(timeout_s)
        deadline = self._deadline(timeout_s)
        waiters = [self._begin_wait(task.id, deadline, task.since) for task in tasks]
        try:
            return [await _outcome(waiter.future) for waiter in waiters]
        except asyncio.CancelledError:
            for task, waiter in zip(tasks, waiters, strict=True):
                self._forget(task.id, waiter)
            raise

    async def look(self, ids: list[str]) -> list[tuple[bytes, bytes]]:
        """Of each task its state, and its result or the reason why it failed."""
        outcomes: list[tuple[bytes, bytes]] = []
        keys = self._keys
        names = {
            "running": keys.running,
            "info_of": keys.info_of,
            "result_of": keys.result_of,
            "group": keys.group,
        }
        for start in range(0, len(ids), MOST_ROWS):
            rows: list[dict[str, Any]] = [{"id": id_} for id_ in ids[start : start + MOST_ROWS]]
            outcomes += await look_at_tasks.rows(self._store, rows, timeout_s=None, **names)
        return outcomes

    # -- inside: waiting ----------------------------------------------------------------------------------

    def _deadline(self, timeout_s: float | None) -> float:
        return _NEVER if timeout_s is None else self._loop.time() + timeout_s

    def _begin_wait(self, id_: str, deadline: float, since: int) -> _Waiter:
        waiter = _Waiter(self._loop.create_future(), deadline)
        waiters = self._waiting.get(id_)
        if waiters is None:
            self._waiting[id_] = [waiter]
        else:
            waiters.append(waiter)
        if not self._heard.excludes(id_, since):
            self._looks.add(id_)
        if deadline < self._timer_at:
            self._set_timer(deadline)
        return waiter

    def _forget(self, id_: str, waiter: _Waiter) -> None:
        waiters = self._waiting.get(id_)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[id_]

    def _set_timer(self, deadline: float) -> None:
        """One for all: a timer for each who waits would cost more than the waiting."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._end_overdue)

    def _end_overdue(self) -> None:
        self._timer, self._timer_at = None, _NEVER
        now, earliest = self._loop.time(), _NEVER
        for id_, waiters in list(self._waiting.items()):
            for waiter in list(waiters):
                if waiter.deadline > now:
                    earliest = min(earliest, waiter.deadline)
                    continue
                self._forget(id_, waiter)
                if not waiter.future.done():
                    fail(waiter.future, TimeoutError(f"task {id_!r} has not ended yet"))
        if earliest < _NEVER:
            self._set_timer(earliest)

    # -- inside: hearing ----------------------------------------------------------------------------------

    async def _listen_within(self, timeout_s: float | None) -> None:
        deadline = _NEVER if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        await until_known(self._listen, deadline=deadline)

    async def _listen(self) -> None:
        """Whoever comes first begins; all wait until it stands, and one that is cancelled keeps nobody from it."""
        if self._ready is None:
            self._loop = asyncio.get_running_loop()
            self._ready = self._loop.create_future()
            self._hearing = asyncio.create_task(self._hear(self._ready), name=f"kizuna results of {self.group}")
        await asyncio.shield(self._ready)

    async def _hear(self, ready: asyncio.Future[None]) -> None:
        try:
            async with self._store.events.listen(self._keys.finished) as feed:
                self._heard.missed()
                self._is_hearing = True
                ready.set_result(None)
                await self._read(feed)
        except Exception as error:
            if ready.done():
                raise
            fail(ready, error)
        finally:
            self._is_hearing, self._ready = False, None

    async def _read(self, feed: Feed[Message]) -> None:
        while True:
            try:
                event = await feed.next(timeout_s=_LOOK_ANYWAY_S)
            except KizunaError as error:
                # Nothing can be heard: who waits has to know, and the next one begins anew.
                self._fail(list(self._waiting), error)
                return
            if isinstance(event, Message):
                self._take(event.payload)
            else:
                if isinstance(event, LookAgain):
                    self._heard.missed()
                for id_ in self._waiting:
                    self._looks.add(id_)

    def _take(self, payload: bytes) -> None:
        ids = payload.decode(errors="replace").split(" ")
        self._heard.take(ids)
        for id_ in ids:
            if id_ in self._waiting:
                self._fetches.add(id_)

    # -- inside: looking; whatever is read may be read again, when the answer was lost -------------------

    async def _fetch_and_tell(self, ids: list[str]) -> None:
        """Nearly all that were named as finished have a result; the others are looked at more closely."""
        try:
            for start in range(0, len(ids), MOST_ROWS):
                part = ids[start : start + MOST_ROWS]
                results = await until_known(partial(self._fetch, part))
                for id_, result in zip(part, results, strict=True):
                    if result is None:
                        self._looks.add(id_)
                    else:
                        self._tell(id_, b"done", result)
        except Exception as error:
            self._fail(ids, error)

    def _fetch(self, ids: list[str]) -> Awaitable[Any]:
        return self._store.call("MGET", *[self._keys.result_of + id_ for id_ in ids])

    async def _look_and_tell(self, ids: list[str]) -> None:
        try:
            outcomes = await until_known(partial(self.look, ids))
        except Exception as error:
            # Whatever it is, it is theirs who wait: nobody else would hear of it.
            self._fail(ids, error)
            return
        for id_, (state, value) in zip(ids, outcomes, strict=True):
            if state in _ENDED:
                self._tell(id_, state, value)

    def _tell(self, id_: str, state: bytes, value: bytes) -> None:
        for future, _ in self._waiting.pop(id_, ()):
            if future.done():
                continue
            try:
                future.set_result(self._result(id_, state, value))
            except KizunaError as error:
                fail(future, error)

    def _result(self, id_: str, state: bytes, value: bytes) -> Any:
        if state == b"done":
            return decoded(self._codec, value)
        if state == b"dead":
            raise TaskFailed(id_, value.decode(errors="replace"))
        raise TaskCancelled(id_) if state == b"cancelled" else TaskUnknown(id_, self.group)

    def _fail(self, ids: list[str], error: BaseException) -> None:
        for id_ in ids:
            for future, _ in self._waiting.pop(id_, ()):
                if not future.done():
                    fail(future, copy_of(error))


async def _outcome(future: asyncio.Future[Any]) -> Any:
    try:
        return await future
    except (KizunaError, TimeoutError) as error:
        return error


def decoded(codec: Codec, result: bytes) -> Any:
    """A task that returned nothing has an empty result, in any format."""
    if not result and codec.name not in ("raw", "text"):
        return None
    return codec.decode(result)
