"""What is awaited in one turn of the event loop becomes one command.

    await push.row(store, queue=q, id=1, …) ───> EVALSHA push … row 1            at once, if the server is idle
    await push.row(store, queue=q, id=2, …) ─┐
    await push.row(store, queue=q, id=3, …) ─┼─> EVALSHA push … rows 2, 3, 4     one result for each
    await push.row(store, queue=q, id=4, …) ─┘
    await store.get(a), await store.get(b)  ───> MGET a b

Order per key is kept: before anything else touches a key that stands in an open batch, that batch leaves.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, Protocol, cast

from kizuna.errors import KizunaError, Refused, StoreError
from kizuna.store.link import copy_of
from kizuna.store.scripts import MOST_ROWS, Script
from kizuna.store.taking import Taker
from kizuna.store.wire import Argument, Command, fail

# Bytes of one call, some milliseconds on the way: 1,000 large rows would go beyond what the server takes at once.
MOST_BYTES = 4 * 1024 * 1024

Delivery = Coroutine[Any, Any, Sequence[Any]]


class Sender(Protocol):
    @property
    def is_idle(self) -> bool:
        """Whether there is one server, and it has nothing of ours to do."""

    def deadline(self, timeout_s: float | None) -> float:
        """When a call that begins now has to be answered."""

    def begin(self, command: Command, deadline: float) -> Awaitable[Any]:
        """Put the command in the line now; await the result for the reply."""

    def begin_script(self, script: Script, command: Command, deadline: float) -> Awaitable[Any]:
        """The same for the EVALSHA of a script."""

    def post_script(self, taker: Taker, script: Script, command: Command, deadline: float) -> None:
        """The same for those who want no future."""


class _Batch:
    """Rows that will leave together, and who waits for which. `begin` puts their command in the line."""

    __slots__ = ("begin", "bytes", "keys", "most_rows", "name", "rows", "waiting")

    def __init__(self, name: Hashable, begin: Callable[[_Batch], None], most_rows: int) -> None:
        self.name, self.begin, self.most_rows = name, begin, most_rows
        self.rows: list[Any] = []
        self.waiting: list[asyncio.Future[Any]] = []
        self.keys: list[bytes] = []
        self.bytes = 0


class Batcher:
    """Gathers rows until the turn of the loop ends. `group` says which keys may stand in one command."""

    def __init__(self, sender: Sender, group: Callable[[bytes], int]) -> None:
        self._sender, self._group = sender, group
        self.gathering: dict[Hashable, _Batch] = {}
        """The batches that are open, by what their rows have in common."""
        self._holders: dict[bytes, _Batch] = {}
        """Which open batch has a key."""
        self._deliveries: set[asyncio.Task[None]] = set()
        self._rows_sent: set[_RowsTaker] = set()
        """Those whose answer has not come yet."""

    def get(self, key: bytes, timeout_s: float | None) -> asyncio.Future[bytes | None]:
        name = (self._group(key), timeout_s)
        batch = self.gathering.get(name) or self._opened(name, functools.partial(self._send_gets, timeout_s), MOST_ROWS)
        return self._join(batch, key, (key,), len(key))

    def row(
        self,
        script: Script,
        fixed: Mapping[str, Argument],
        row: Mapping[str, Argument],
        timeout_s: float | None,
    ) -> asyncio.Future[Any]:
        """One row of a script; rows with the same fixed arguments that are awaited together share one call."""
        if not self.gathering and self._sender.is_idle:
            return self._alone(script, fixed, row, timeout_s)
        keys = [key if type(key) is bytes else str(key).encode() for key in script.keys_of(fixed, row)]
        group = self._group(keys[0]) if keys else 0
        # With their types: 1 and 1.0 are equal to Python, and not to a script.
        name = (script.sha, group, timeout_s, *fixed.values(), *map(type, fixed.values()))
        batch = self.gathering.get(name)
        if batch is None:
            batch = self._opened(name, functools.partial(self._send_rows, script, fixed, timeout_s), script.most_rows)
        return self._join(batch, row, keys, _size(row))

    def make_way(self, keys: Sequence[bytes]) -> None:
        """Something else is about to touch these keys, or none in particular: what it could meet leaves first."""
        if not keys:
            self.send_all()
        for key in keys:
            holder = self._holders.get(key)
            if holder is not None:
                self._send(holder)

    def send_all(self) -> None:
        for batch in list(self.gathering.values()):
            self._send(batch)

    async def settle(self, within_s: float | None = None) -> None:
        """Send what has gathered, and wait until it is answered; or no longer than that."""
        self.send_all()
        waiting = [future for rows in self._rows_sent for future in rows.waiting if not future.done()]
        if self._deliveries or waiting:
            await asyncio.wait([*self._deliveries, *waiting], timeout=within_s)

    # -- inside -----------------------------------------------------------------------------------------

    def _opened(self, name: Hashable, begin: Callable[[_Batch], None], most_rows: int) -> _Batch:
        if not self.gathering:
            asyncio.get_running_loop().call_soon(self.send_all)
        batch = self.gathering[name] = _Batch(name, begin, most_rows)
        return batch

    def _join(self, batch: _Batch, row: Any, keys: Sequence[bytes], size: int) -> asyncio.Future[Any]:
        for key in keys:
            holder = self._holders.get(key)
            if holder is not batch:
                if holder is not None:
                    self._send(holder)
                self._holders[key] = batch
                batch.keys.append(key)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        batch.rows.append(row)
        batch.waiting.append(future)
        batch.bytes += size
        if len(batch.rows) == batch.most_rows or batch.bytes >= MOST_BYTES:
            self._send(batch)
        return future

    def _alone(
        self, script: Script, fixed: Mapping[str, Argument], row: Mapping[str, Argument], timeout_s: float | None
    ) -> asyncio.Future[Any]:
        """Now, as the server has nothing else to do; whoever comes after it in this turn gathers."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._post_rows(script, fixed, timeout_s, [row], [future])
        return future

    def _send(self, batch: _Batch) -> None:
        del self.gathering[batch.name]
        for key in batch.keys:
            del self._holders[key]
        try:
            batch.begin(batch)
        except Exception as error:
            # Whatever it is, it is theirs who wait: nobody else would hear of it.
            _fail(batch.waiting, error)

    def _send_gets(self, timeout_s: float | None, batch: _Batch) -> None:
        keys = batch.rows
        command: Command = ("MGET", *keys) if len(keys) > 1 else ("GET", keys[0])
        # The command is in the line when `begin` returns; only its answer is waited for in the task.
        delivery = _values(self._sender.begin(command, self._sender.deadline(timeout_s)), keys)
        task = asyncio.get_running_loop().create_task(_deliver(delivery, batch.waiting))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)

    def _send_rows(self, script: Script, fixed: Mapping[str, Argument], timeout_s: float | None, batch: _Batch) -> None:
        self._post_rows(script, fixed, timeout_s, batch.rows, batch.waiting)

    def _post_rows(
        self,
        script: Script,
        fixed: Mapping[str, Argument],
        timeout_s: float | None,
        rows: list[Any],
        waiting: list[asyncio.Future[Any]],
    ) -> None:
        # Without a task or a future of their own: those would cost more than the command.
        taker = _RowsTaker(script, waiting, self._rows_sent.discard)
        self._rows_sent.add(taker)
        deadline = self._sender.deadline(timeout_s)
        try:
            self._sender.post_script(taker, script, script.command(fixed, rows), deadline)
        except BaseException:
            self._rows_sent.discard(taker)
            raise


class _RowsTaker(Taker):
    """Gives each who waits for a row what the script returned for it."""

    __slots__ = ("_over", "_script", "waiting")

    def __init__(
        self, script: Script, waiting: list[asyncio.Future[Any]], over: Callable[[_RowsTaker], object]
    ) -> None:
        self._script, self.waiting, self._over = script, waiting, over

    def set_result(self, reply: Any) -> None:
        self._over(self)
        try:
            results = self._script.results(reply, len(self.waiting))
        except KizunaError as error:
            _fail(self.waiting, error)
            return
        _hand_out(results, self.waiting)

    def set_exception(self, error: BaseException) -> None:
        self._over(self)
        meant = self._script.failure(error) if isinstance(error, Refused) else error
        _fail(self.waiting, cast("Exception", meant))


def _size(row: Mapping[str, Argument]) -> int:
    size = 0
    for value in row.values():
        if type(value) is bytes or type(value) is str:
            size += len(value)
    return size


async def _deliver(delivery: Delivery, waiting: list[asyncio.Future[Any]]) -> None:
    """Each awaiter gets its own result or its own error."""
    try:
        results = await delivery
    except Exception as error:
        _fail(waiting, error)
        return
    _hand_out(results, waiting)


def _hand_out(results: Sequence[Any], waiting: list[asyncio.Future[Any]]) -> None:
    for future, result in zip(waiting, results, strict=True):
        if future.done():
            continue
        if isinstance(result, StoreError):
            fail(future, result)
        else:
            future.set_result(result)


def _fail(waiting: list[asyncio.Future[Any]], error: Exception) -> None:
    for future in waiting:
        if not future.done():
            fail(future, copy_of(error))


async def _values(reply: Awaitable[Any], keys: list[bytes]) -> Sequence[Any]:
    values = await reply
    return values if len(keys) > 1 else [values]
