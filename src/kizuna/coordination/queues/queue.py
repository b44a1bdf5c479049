"""Queues: durable tasks with priorities, leases, retries, results.

queue = k.queue("images")
task = await queue.push({"n": 1}, priority="high")
...
async with queue.consumer() as consumer:
    for delivery in await consumer.take(most=50):
        consumer.finish(delivery, work(delivery.payload))
...
await task.result(timeout_s=10)
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from kizuna.codecs import JSON, Codec
from kizuna.coordination.keys import QUEUES_GROUPS
from kizuna.coordination.queue_names import DEFAULT_GROUP, Priority
from kizuna.coordination.queues.care import QueueCare
from kizuna.coordination.queues.consumers import Consumer
from kizuna.coordination.queues.group_keys import GroupKeys
from kizuna.coordination.queues.holding import TaskHolder
from kizuna.coordination.queues.pops import Pop
from kizuna.coordination.queues.pushes import Kind, Pushes, Row
from kizuna.coordination.queues.results import TaskResults
from kizuna.coordination.queues.taking import Shares, Taking, give_back
from kizuna.coordination.queues.tasks import Delivery, Push, State, Task
from kizuna.coordination.roots import roots_of
from kizuna.errors import KizunaError, PermissionDenied, ProcessTaken, WrongValue

if TYPE_CHECKING:
    from kizuna.coordination.background import Background
    from kizuna.coordination.processes.membership import Registration
    from kizuna.store.client import Store

__all__ = ["DEFAULT_GROUP", "Push", "Queue", "Queues"]

log = logging.getLogger("kizuna.coordination")


class Queues:
    """All groups. One of these for a process is enough."""

    def __init__(
        self, store: Store, background: Background, process: str, join: Callable[[], Awaitable[Registration]]
    ) -> None:
        self._store, self._background, self._process, self._join = store, background, process, join
        self._roots = roots_of(store)
        self._groups: dict[tuple[str, Codec], Queue] = {}
        self._numbers = itertools.count(1)
        # Another process may have our name, before us or by mistake.
        self._mark = secrets.token_hex(3)
        self._joining = asyncio.Lock()
        self._stays = False
        self._registration: Registration | None = None

    def group(self, name: str = DEFAULT_GROUP, *, codec: Codec = JSON) -> Queue:
        """The queue of this group. IllegalName if it cannot have that name."""
        key = (name, codec)
        if key not in self._groups:
            self._groups[key] = Queue(self, self._store, self._background, GroupKeys(self._roots, name), codec)
        return self._groups[key]

    async def groups(self) -> list[str]:
        """The groups that have, or had, tasks."""
        found = await asyncio.gather(
            *(self._store.call("SMEMBERS", QUEUES_GROUPS.build(root)) for root in self._roots.all)
        )
        return sorted(name.decode() for names in found for name in names)

    async def give_back(self, process: str) -> int:
        """The process is dead: whatever its consumers held goes back to the queues at once. Returns how many tasks."""
        number = 0
        for group in await self.groups():
            keys = GroupKeys(self._roots, group)
            for raw in await self._store.call("ZRANGE", keys.consumers, 0, -1):
                consumer = raw.decode()
                if consumer.rpartition(".")[0] == process:
                    number += await give_back(self._store, keys, consumer, "died")
        return number

    async def join(self) -> Registration | None:
        """Be a member of the fleet while we hold tasks: then they are given back as soon as we are known to be dead.
        None if we cannot be: then only when our lease ends."""
        try:
            return await self._join()
        except (PermissionDenied, ProcessTaken) as error:
            log.warning("takes tasks without being a member", extra={"member": self._process, "error": str(error)})
            return None

    async def stay(self) -> None:
        """Be a member until `aclose`: whoever pops tasks does not say when it will have popped its last one."""
        if not self._stays:
            async with self._joining:
                if not self._stays:
                    self._registration = await self.join()
                    self._stays = True

    async def aclose(self) -> None:
        """Harmless when repeated."""
        if self._registration is not None:
            await self._registration.leave()

    def new_consumer_id(self, kind: str = "c") -> str:
        """A name that says whose it is. `kind` c stays, p is gone with its one task."""
        return f"{self._process}.{kind}{next(self._numbers)}-{self._mark}"


class Queue(QueueCare):
    """The tasks of one group. What is promised about them: docs/queues.md."""

    def __init__(self, queues: Queues, store: Store, background: Background, keys: GroupKeys, codec: Codec) -> None:
        self._results = TaskResults(store, keys, codec)
        super().__init__(store, keys, self._results)
        self.codec = codec
        self._queues, self._background = queues, background
        self._pushes = Pushes(store, keys)

    async def push(
        self,
        payload: Any,
        *,
        priority: Priority = "normal",
        id: str | None = None,  # noqa: A002 - what it is called everywhere else
        delay_s: float = 0,
        attempts: int | None = None,
        timeout_s: float | None = None,
        result_s: float | None = None,
        name: str = "",
    ) -> Task:
        """Add a task; it is on the server when this returns.

        With an id of your own, a repetition is harmless: while the task, or its result, is there, a second push of
        the same id changes nothing, and the task it returns is `known`. `delay_s` is how long it has to wait at least,
        `attempts` how often it is tried, `timeout_s` how long a worker lets it run, `result_s` how long its result is
        kept (0: there is none), `name` which handler of a worker it is for.
        """
        raw = self.codec.encode(payload)
        kind, row = self._pushes.row(raw, id, priority, delay_s, attempts, timeout_s, result_s, name)
        since = self._results.since
        known = await self._pushes.add(kind, row)
        return Task(row["id"], known, self._results, -1 if known else since)  # type: ignore[arg-type]  # ids are text

    async def push_many(self, payloads: Iterable[Any]) -> list[Task]:
        """Add many: payloads, or `Push`es that say more. Those of one priority keep their order.

        When it raises, some may have been pushed: give them ids, and a repetition is harmless.
        """
        since = self._results.since
        outcomes = await self._pushes.send_many(map(self._row, payloads))
        return [Task(id_, known, self._results, -1 if known else since) for id_, known in outcomes]

    async def result(self, id_: str, *, timeout_s: float | None = None) -> Any:
        """Like `Task.result`, for who knows only the id."""
        self._keys.info(id_)
        return await self._results.wait(id_, timeout_s)

    async def results(
        self, tasks: Sequence[Task], *, timeout_s: float | None = None, return_errors: bool = False
    ) -> list[Any]:
        """The results of many tasks of this group, in their order; much cheaper than one by one.

        The first error of one of them is raised when all have ended or the time is up; with `return_errors` it stands
        in its place instead.
        """
        outcomes = await self._results.wait_many(tasks, timeout_s)
        if not return_errors:
            for outcome in outcomes:
                if isinstance(outcome, KizunaError | TimeoutError):
                    raise outcome
        return outcomes

    def consumer(
        self, *, lease_s: float | None = None, normal_share: float | None = None, low_share: float | None = None
    ) -> Consumer:
        """For `async with`. The lease is how long our tasks stay ours when nobody renews it any more; the shares are
        the part of all tasks handed out to us that is kept for normal and for low ones."""
        lease_s = self._store.settings.queues.lease_s if lease_s is None else lease_s
        _check_lease(lease_s)
        shares = self._shares(normal_share, low_share)
        id_, join = self._queues.new_consumer_id(), self._queues.join
        return Consumer(
            self._store, self._background, join, self._keys, self.codec, id_, lease_s=lease_s, shares=shares
        )

    async def pop(self, *, lease_s: float | None = None, wait_s: float = 0) -> Delivery | None:
        """One task, under a lease of its own that nobody renews but you; None if there is none within `wait_s`."""
        lease_s = self._store.settings.queues.lease_s if lease_s is None else lease_s
        _check_lease(lease_s)
        await self._queues.stay()
        holder = self._holder(self._queues.new_consumer_id("p"), lease_s)
        taking = Taking(self._store, self._keys, holder, self._shares(None, None), stays=False)
        return await Pop(self._store, self._keys, holder.id, taking).one(wait_s)

    async def settle(
        self,
        id_: str,
        token: str,
        result: Any = None,
        *,
        error: str | None = None,
        retry: bool = True,
        retry_in_s: float | None = None,
    ) -> State:
        """Settle a task that was popped elsewhere, by its token: done with this result, or failed with that error, as
        `Delivery.fail` takes it. LeaseLost if it is no longer theirs."""
        delivery = self._delivery(id_, token)
        if error is not None:
            return await delivery.fail(error, retry=retry, retry_in_s=retry_in_s)
        result_ms = await self._store.call("HGET", self._keys.info(id_), "result_ms")
        delivery.result_ms = int(result_ms) if result_ms else None
        await delivery.done(result)
        return "done"

    async def renew(self, id_: str, token: str, *, lease_s: float | None = None) -> None:
        """Let the lease of a task that was popped elsewhere begin anew. LeaseLost if it has ended."""
        delivery = self._delivery(id_, token, lease_s)
        await delivery.renew()

    # -- inside -----------------------------------------------------------------------------------------

    def _row(self, payload: Any) -> tuple[Kind, Row]:
        if not isinstance(payload, Push):
            return self._pushes.row(self.codec.encode(payload))
        _, id_, *more = structs.astuple(payload)
        return self._pushes.row(self.codec.encode(payload.payload), id_, *more)

    def _delivery(self, id_: str, token: str, lease_s: float | None = None) -> Delivery:
        self._keys.info(id_)
        consumer, _, number = token.rpartition("/")
        if not consumer or not number.isdigit():
            raise WrongValue("token", repr(token), "what `pop` gave with the task")
        lease_s = self._store.settings.queues.lease_s if lease_s is None else lease_s
        _check_lease(lease_s)
        return self._holder(consumer, lease_s).delivery_of(id_, int(number))

    def _holder(self, consumer: str, lease_s: float) -> TaskHolder:
        leaves = consumer.rpartition(".")[2].startswith("p")
        return TaskHolder(self._store, self._keys, self.codec, consumer, lease_s=lease_s, leaves=leaves)

    def _shares(self, normal: float | None, low: float | None) -> Shares:
        queues = self._store.settings.queues
        shares = Shares(queues.normal_share if normal is None else normal, queues.low_share if low is None else low)
        if not (0 <= shares.normal <= 0.5 and 0 <= shares.low <= 0.5):
            raise WrongValue("a share", f"{shares.normal:g} and {shares.low:g}", "parts from 0 to 0.5")
        return shares


def _check_lease(lease_s: float) -> None:
    if not 0 < lease_s <= 86_400:
        raise WrongValue("lease_s", f"{lease_s}", "seconds above 0, a day at most")
