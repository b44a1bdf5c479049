"""What is awaited in one turn of the event loop becomes one command.

    await push.row(store, queue=q, id=1, …) ─┐
    await push.row(store, queue=q, id=2, …) ─┼─> EVALSHA push … rows 1, 2, 3     one result for each
    await push.row(store, queue=q, id=3, …) ─┘
    await store.get(a), await store.get(b)  ───> MGET a b

Order per key is kept: before anything else touches a key that stands in an open batch, that batch leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, Protocol

from kizuna.errors import KizunaError
from kizuna.store.scripts import Script, begin_script
from kizuna.store.wire import Argument, Command

# Rows of one call: a script holds up the whole server while it runs, and this is some milliseconds of its time.
MOST_ROWS = 1_000

Delivery = Coroutine[Any, Any, Sequence[Any]]


class Sender(Protocol):
    def begin(self, command: Command, timeout_s: float | None = None) -> Coroutine[Any, Any, Any]:
        """Put the command in the line now; await the result for the reply."""


class _Batch:
    """Rows that will leave together, and who waits for which. `begin` puts their command in the line."""

    def __init__(self, begin: Callable[[list[Any]], Delivery]) -> None:
        self.begin = begin
        self.rows: list[Any] = []
        self.waiting: list[asyncio.Future[Any]] = []
        self.keys: set[bytes] = set()


class Batcher:
    """Gathers rows until the turn of the loop ends. `group` says which keys may stand in one command."""

    def __init__(self, sender: Sender, group: Callable[[bytes], int]) -> None:
        self._sender, self._group = sender, group
        self._open: dict[Hashable, _Batch] = {}
        self._holders: dict[bytes, Hashable] = {}
        self._deliveries: set[asyncio.Task[None]] = set()

    @property
    def is_empty(self) -> bool:
        return not self._open

    def get(self, key: bytes, timeout_s: float | None) -> asyncio.Future[bytes | None]:
        def begin(keys: list[bytes]) -> Delivery:
            return _values(self._sender.begin(("MGET", *keys) if len(keys) > 1 else ("GET", keys[0]), timeout_s), keys)

        return self._join(("GET", self._group(key), timeout_s), begin, key, (key,))

    def row(
        self,
        script: Script,
        fixed: Mapping[str, Argument],
        row: Mapping[str, Argument],
        timeout_s: float | None,
    ) -> asyncio.Future[Any]:
        """One row of a script; rows with the same fixed arguments that are awaited together share one call."""

        def begin(rows: list[Mapping[str, Argument]]) -> Delivery:
            return begin_script(self._sender, script, fixed, rows, timeout_s)

        keys = [key if type(key) is bytes else str(key).encode() for key in script.keys_of(fixed, row)]
        group = self._group(keys[0]) if keys else 0
        return self._join((script.sha, group, timeout_s, *fixed.values()), begin, row, keys)

    def make_way(self, keys: Sequence[bytes]) -> None:
        """Something else is about to touch these keys: the batches that hold them leave first."""
        for key in keys:
            holder = self._holders.get(key)
            if holder is not None:
                self._send(holder)

    async def aclose(self) -> None:
        self._send_all()
        await asyncio.gather(*self._deliveries)

    # -- inside -----------------------------------------------------------------------------------------

    def _join(
        self, name: Hashable, begin: Callable[[list[Any]], Delivery], row: Any, keys: Sequence[bytes]
    ) -> asyncio.Future[Any]:
        for key in keys:
            holder = self._holders.get(key)
            if holder is not None and holder != name:
                self._send(holder)
        loop = asyncio.get_running_loop()
        batch = self._open.get(name)
        if batch is None:
            if not self._open:
                loop.call_soon(self._send_all)
            batch = self._open[name] = _Batch(begin)
        for key in keys:
            self._holders[key] = name
        batch.keys.update(keys)
        batch.rows.append(row)
        future: asyncio.Future[Any] = loop.create_future()
        batch.waiting.append(future)
        if len(batch.rows) == MOST_ROWS:
            self._send(name)
        return future

    def _send_all(self) -> None:
        for name in list(self._open):
            self._send(name)

    def _send(self, name: Hashable) -> None:
        batch = self._open.pop(name)
        for key in batch.keys:
            del self._holders[key]
        try:
            # The command is in the line when `begin` returns; only its answer is waited for in the task.
            delivery = batch.begin(batch.rows)
        except (KizunaError, TypeError) as error:
            _fail(batch.waiting, error)
            return
        task = asyncio.get_running_loop().create_task(_deliver(delivery, batch.waiting))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)


async def _deliver(delivery: Delivery, waiting: list[asyncio.Future[Any]]) -> None:
    """Each awaiter gets its own result or its own error."""
    try:
        results = await delivery
    except KizunaError as error:
        _fail(waiting, error)
        return
    for future, result in zip(waiting, results, strict=True):
        if not future.done():
            future.set_result(result)


def _fail(waiting: list[asyncio.Future[Any]], error: Exception) -> None:
    for future in waiting:
        if not future.done():
            # One for each who waits: an exception that is raised twice grows a traceback of both.
            future.set_exception(type(error)(*error.args))


async def _values(reply: Coroutine[Any, Any, Any], keys: list[bytes]) -> Sequence[Any]:
    values = await reply
    return values if len(keys) > 1 else [values]
