"""What is awaited in one turn of the event loop becomes one command.

    await push.row(store, queue=q, id=1, …) ─┐
    await push.row(store, queue=q, id=2, …) ─┼─> EVALSHA push … rows 1, 2, 3     one result for each
    await push.row(store, queue=q, id=3, …) ─┘
    await store.get(a), await store.get(b)  ───> MGET a b

Order per key is kept: before anything else touches a key that stands in an open batch, that batch leaves.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, Protocol

from kizuna.errors import StoreError
from kizuna.store.link import copy_of
from kizuna.store.scripts import Script, begin_script
from kizuna.store.wire import Argument, Command, fail

# Rows of one call: a script holds up the whole server while it runs, and this is some milliseconds of its time.
MOST_ROWS = 1_000
# And of their bytes, some milliseconds on the way: 1,000 large rows would go beyond what the server takes at once.
MOST_BYTES = 4 * 1024 * 1024

Delivery = Coroutine[Any, Any, Sequence[Any]]


class Sender(Protocol):
    def deadline(self, timeout_s: float | None) -> float:
        """When a call that begins now has to be answered."""

    def begin(self, command: Command, deadline: float) -> Awaitable[Any]:
        """Put the command in the line now; await the result for the reply."""

    def begin_script(self, script: Script, command: Command, deadline: float) -> Awaitable[Any]:
        """The same for the EVALSHA of a script."""


class _Batch:
    """Rows that will leave together, and who waits for which. `begin` puts their command in the line."""

    __slots__ = ("begin", "bytes", "keys", "name", "rows", "waiting")

    def __init__(self, name: Hashable, begin: Callable[[list[Any]], Delivery]) -> None:
        self.name, self.begin = name, begin
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

    def get(self, key: bytes, timeout_s: float | None) -> asyncio.Future[bytes | None]:
        name = (self._group(key), timeout_s)
        batch = self.gathering.get(name) or self._opened(name, functools.partial(self._begin_gets, timeout_s))
        return self._join(batch, key, (key,), len(key))

    def row(
        self,
        script: Script,
        fixed: Mapping[str, Argument],
        row: Mapping[str, Argument],
        timeout_s: float | None,
    ) -> asyncio.Future[Any]:
        """One row of a script; rows with the same fixed arguments that are awaited together share one call."""
        keys = [key if type(key) is bytes else str(key).encode() for key in script.keys_of(fixed, row)]
        group = self._group(keys[0]) if keys else 0
        # With their types: 1 and 1.0 are equal to Python, and not to a script.
        name = (script.sha, group, timeout_s, *fixed.values(), *map(type, fixed.values()))
        batch = self.gathering.get(name)
        if batch is None:
            batch = self._opened(name, functools.partial(self._begin_rows, script, fixed, timeout_s))
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
        if self._deliveries:
            await asyncio.wait(self._deliveries, timeout=within_s)

    # -- inside -----------------------------------------------------------------------------------------

    def _opened(self, name: Hashable, begin: Callable[[list[Any]], Delivery]) -> _Batch:
        if not self.gathering:
            asyncio.get_running_loop().call_soon(self.send_all)
        batch = self.gathering[name] = _Batch(name, begin)
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
        if len(batch.rows) == MOST_ROWS or batch.bytes >= MOST_BYTES:
            self._send(batch)
        return future

    def _begin_gets(self, timeout_s: float | None, keys: list[bytes]) -> Delivery:
        command: Command = ("MGET", *keys) if len(keys) > 1 else ("GET", keys[0])
        return _values(self._sender.begin(command, self._sender.deadline(timeout_s)), keys)

    def _begin_rows(
        self,
        script: Script,
        fixed: Mapping[str, Argument],
        timeout_s: float | None,
        rows: list[Mapping[str, Argument]],
    ) -> Delivery:
        return begin_script(self._sender, script, fixed, rows, self._sender.deadline(timeout_s))

    def _send(self, batch: _Batch) -> None:
        del self.gathering[batch.name]
        for key in batch.keys:
            del self._holders[key]
        try:
            # The command is in the line when `begin` returns; only its answer is waited for in the task.
            delivery = batch.begin(batch.rows)
        except Exception as error:
            # Whatever it is, it is theirs who wait: nobody else would hear of it.
            _fail(batch.waiting, error)
            return
        task = asyncio.get_running_loop().create_task(_deliver(delivery, batch.waiting))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)


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
