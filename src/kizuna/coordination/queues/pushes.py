"""Pushing tasks: what is pushed in one turn of the loop travels together."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kizuna.clock import milliseconds
from kizuna.coordination.queue_names import DEFAULT_GROUP
from kizuna.coordination.queues.group_keys import GroupKeys, check_priority
from kizuna.errors import WrongValue
from kizuna.settings import LONGEST_KEPT_S
from kizuna.store.batching import MOST_BYTES
from kizuna.store.link import copy_of
from kizuna.store.repeating import until_known
from kizuna.store.scripts import Script
from kizuna.store.wire import Argument, fail

if TYPE_CHECKING:
    from kizuna.store.client import Store

push_tasks = Script.load(__package__, "push_tasks")

# Rows of one call: some 3 ms of the server, which others wait for, workers among them.
_MOST_ROWS = 250
# Calls of one push_many that are under way at once: the server works on one while we pack the next.
_CALLS_AHEAD = 3

Row = dict[str, Argument]


class Kind(NamedTuple):
    """What all rows of one call have in common."""

    priority: str
    delay_ms: int
    fresh: bool
    """Their ids were made here, so nobody has used them before."""


class _Gathered:
    __slots__ = ("bytes", "rows", "waiting")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.waiting: list[asyncio.Future[bool]] = []
        self.bytes = 0


class Pushes:
    """Adds tasks to one group."""

    def __init__(self, store: Store, keys: GroupKeys) -> None:
        self._store, self._keys = store, keys
        self._prefix = secrets.token_urlsafe(7)
        self._numbers = itertools.count()
        self._gathering: dict[Kind, _Gathered] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def row(
        self,
        payload: bytes,
        id_: str | None = None,
        priority: str = "normal",
        delay_s: float = 0,
        attempts: int | None = None,
        timeout_s: float | None = None,
        result_s: float | None = None,
        name: str = "",
    ) -> tuple[Kind, Row]:
        """One task as it is sent. IllegalName or WrongValue for what cannot be pushed."""
        kind = _kind(priority, delay_s, id_ is None)
        if id_ is None:
            id_ = f"{self._prefix}{next(self._numbers):x}"
        else:
            self._keys.info(id_)
        more = _more(self._keys.group, attempts, timeout_s, result_s, name)
        return kind, {"id": id_, "payload": payload, "more": more}

    def add(self, kind: Kind, row: Row) -> asyncio.Future[bool]:
        """Push it with the others of this turn. The result says whether it was known already."""
        loop = asyncio.get_running_loop()
        if not self._gathering:
            loop.call_soon(self._send_all)
        gathered = self._gathering.get(kind)
        if gathered is None:
            gathered = self._gathering[kind] = _Gathered()
        future: asyncio.Future[bool] = loop.create_future()
        gathered.rows.append(row)
        gathered.waiting.append(future)
        gathered.bytes += len(row["payload"])  # type: ignore[arg-type]  # payloads are bytes
        if len(gathered.rows) == _MOST_ROWS or gathered.bytes >= MOST_BYTES:
            self._send(kind, self._gathering.pop(kind))
        return future

    async def send_many(self, rows: Iterable[tuple[Kind, Row]]) -> list[tuple[str, bool]]:
        """Push them in calls of bounded size. Of each, its id and whether it was known already."""
        outcomes: list[tuple[str, bool]] = []
        under_way: list[tuple[list[int], list[Row], asyncio.Task[list[bool]]]] = []
        try:
            for numbers, kind, batch in _batches(rows):
                outcomes.extend([("", False)] * (max(numbers) + 1 - len(outcomes)))
                under_way.append((numbers, batch, asyncio.create_task(self._push(kind, batch))))
                if len(under_way) > _CALLS_AHEAD:
                    await _note(outcomes, *under_way.pop(0))
            while under_way:
                await _note(outcomes, *under_way.pop(0))
        finally:
            for _, _, task in under_way:
                task.cancel()
            await asyncio.gather(*(task for _, _, task in under_way), return_exceptions=True)
        return outcomes

    # -- inside -----------------------------------------------------------------------------------------

    def _send_all(self) -> None:
        gathering, self._gathering = self._gathering, {}
        for kind, gathered in gathering.items():
            self._send(kind, gathered)

    def _send(self, kind: Kind, gathered: _Gathered) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(kind, gathered))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _deliver(self, kind: Kind, gathered: _Gathered) -> None:
        try:
            outcomes = await self._push(kind, gathered.rows)
        except Exception as error:
            # Whatever it is, it is theirs who wait: nobody else would hear of it.
            for future in gathered.waiting:
                if not future.done():
                    fail(future, copy_of(error))
            return
        for future, known in zip(gathered.waiting, outcomes, strict=True):
            if not future.done():
                future.set_result(known)

    async def _push(self, kind: Kind, rows: list[Row]) -> list[bool]:
        """Again if the connection broke before the answer came: what was pushed is known then, and left alone."""
        deadline = self._store.deadline(None)

        def again() -> Awaitable[list[bytes]]:
            left_s = deadline - asyncio.get_running_loop().time()
            return self._call(kind, rows, fresh=False, timeout_s=left_s)

        outcomes = await until_known(lambda: self._call(kind, rows, fresh=kind.fresh), again, deadline=deadline)
        if kind.fresh:
            return [False] * len(rows)
        return [outcome == b"known" for outcome in outcomes]

    async def _call(self, kind: Kind, rows: list[Row], *, fresh: bool, timeout_s: float | None = None) -> list[bytes]:
        keys = self._keys
        return await push_tasks.rows(
            self._store,
            rows,
            timeout_s=timeout_s,
            queue=keys.queues[kind.priority],  # type: ignore[index]  # checked when it was made
            delayed=keys.delayed,
            idle=keys.idle,
            groups=keys.groups,
            group=keys.group,
            priority=kind.priority,
            delay_ms=kind.delay_ms,
            fresh=int(fresh),
            info_of=keys.info_of,
            result_of=keys.result_of,
            rates_of=keys.rates_of,
            wake_of=keys.wake_of,
        )


async def _note(
    outcomes: list[tuple[str, bool]], numbers: list[int], rows: list[Row], task: asyncio.Task[list[bool]]
) -> None:
    for number, row, known in zip(numbers, rows, await task, strict=True):
        outcomes[number] = (str(row["id"]), known)


def _batches(rows: Iterable[tuple[Kind, Row]]) -> Iterator[tuple[list[int], Kind, list[Row]]]:
    """Rows that can share a call, in their order, with their numbers; no call larger than it should be."""
    gathering: dict[Kind, tuple[list[int], list[Row]]] = {}
    sizes: dict[Kind, int] = {}
    for number, (kind, row) in enumerate(rows):
        if kind not in gathering:
            gathering[kind], sizes[kind] = ([], []), 0
        numbers, batch = gathering[kind]
        numbers.append(number)
        batch.append(row)
        sizes[kind] += len(row["payload"])  # type: ignore[arg-type]  # payloads are bytes
        if len(batch) == _MOST_ROWS or sizes[kind] >= MOST_BYTES:
            yield numbers, kind, batch
            del gathering[kind]
    for kind, (numbers, batch) in gathering.items():
        yield numbers, kind, batch


@lru_cache(maxsize=1024)
def _kind(priority: str, delay_s: float, fresh: bool) -> Kind:
    check_priority(priority)
    if not 0 <= delay_s <= LONGEST_KEPT_S:
        raise WrongValue("delay_s", f"{delay_s}", "seconds from 0 to ten years")
    return Kind(priority, int(delay_s * 1000), fresh)


@lru_cache(maxsize=1024)
def _more(group: str, attempts: int | None, timeout_s: float | None, result_s: float | None, name: str) -> str:
    """The fields that are not as they usually are, as push_tasks.lua takes them."""
    if attempts is not None and attempts < 1:
        raise WrongValue("attempts", f"{attempts}", "1 or more")
    if timeout_s is not None and not 0 < timeout_s <= LONGEST_KEPT_S:
        raise WrongValue("timeout_s", f"{timeout_s}", "seconds above 0")
    if result_s is not None and not 0 <= result_s <= LONGEST_KEPT_S:
        raise WrongValue("result_s", f"{result_s}", "seconds, or 0 to keep no result")
    fields = {
        "group": group if group != DEFAULT_GROUP else None,
        "attempts": None if attempts is None else str(attempts),
        "timeout_ms": None if timeout_s is None else str(milliseconds(timeout_s)),
        "result_ms": None if result_s is None else str(int(result_s * 1000)),
        "name": name or None,
    }
    more = [text for field, value in fields.items() if value is not None for text in (field, value)]
    return msgspec.json.encode(more).decode() if more else ""
