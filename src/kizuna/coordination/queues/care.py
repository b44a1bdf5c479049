"""Looking after a queue: how full it is, what became of a task, and setting things right."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import structs

from kizuna.coordination.queue_names import DEFAULT_GROUP, PRIORITIES, Priority
from kizuna.coordination.queues.group_keys import check_priority
from kizuna.coordination.queues.tasks import Depth, Minute, TaskStatus
from kizuna.errors import TaskUnknown
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.coordination.queues.group_keys import GroupKeys
    from kizuna.coordination.queues.results import TaskResults
    from kizuna.store.client import Store

cancel_task = Script.load(__package__, "cancel_task")
drop_dead = Script.load(__package__, "drop_dead")
requeue_dead = Script.load(__package__, "requeue_dead")
resume_queue = Script.load(__package__, "resume_queue")
purge_queue = Script.load(__package__, "purge_queue")
forget_group = Script.load(__package__, "forget_group")

_AT_ONCE = 500
# Cancelled tasks stay in their list until their turn comes: how many of them are looked past.
_LOOKED_PAST = 20
_MINUTES = 60
# Who waits for the result of a purged task is told at once; a million of them must not fill the server for an hour.
_PURGED_MS = 60_000
_FIELDS = (
    "state", "priority", "name", "at", "failures", "crashes", "attempts", "reason", "progress",
    "note", "group",
)  # fmt: skip


class QueueCare:
    """What people and programs do with a queue besides pushing and taking."""

    def __init__(self, store: Store, keys: GroupKeys, results: TaskResults) -> None:
        self.group = keys.group
        self._store, self._keys, self._results = store, keys, results

    # -- looking ------------------------------------------------------------------------------------------

    async def depth(self) -> Depth:
        keys, call = self._keys, self._store.call
        lengths = [call("LLEN", keys.queues[priority]) for priority in PRIORITIES]
        cancelled = call("HMGET", keys.counts, *(f"cancelled:{priority}" for priority in PRIORITIES))
        delayed, dead, running = call("ZCARD", keys.delayed), call("ZCARD", keys.dead), call("HLEN", keys.running)
        skipped = [int(number or 0) for number in await cancelled]
        high, normal, low = (
            length - skip for length, skip in zip(await asyncio.gather(*lengths), skipped, strict=True)
        )
        return Depth(high=high, normal=normal, low=low, delayed=await delayed, running=await running, dead=await dead)

    async def oldest_age_s(self) -> float | None:
        """How long ago the task that has waited longest was pushed; None if none waits."""
        nexts = await asyncio.gather(
            *(self._store.call("LRANGE", self._keys.queues[priority], -_LOOKED_PAST, -1) for priority in PRIORITIES)
        )
        infos = await asyncio.gather(
            *(
                self._store.call("HMGET", self._keys.info_of + id_.decode(), "at", "state")
                for ids in nexts
                for id_ in ids
            ),
            return_exceptions=True,
        )
        pushed = [int(info[0]) for info in infos if isinstance(info, list) and info[0] and not info[1]]
        return max(0.0, await self._store.time_s() - min(pushed) / 1000) if pushed else None

    async def rates(self) -> list[Minute]:
        """What happened in each minute of the last hour, the present one included; oldest first."""
        minute = int(await self._store.time_s() // 60)
        minutes = range(minute - _MINUTES + 1, minute + 1)
        raw = await asyncio.gather(*(self._store.call("HGETALL", f"{self._keys.rates_of}{at}") for at in minutes))
        return [_minute(at, counts) for at, counts in zip(minutes, raw, strict=True)]

    async def status(self, id_: str) -> TaskStatus:
        """What is known about the task. TaskUnknown if there is none, or its result is no longer kept."""
        info = self._store.call("HMGET", self._keys.info(id_), *_FIELDS)
        runner = self._store.call("HGET", self._keys.running, id_)
        pairs = zip(_FIELDS, await info, strict=True)
        known = {field: value.decode(errors="replace") for field, value in pairs if value}
        consumer = (await runner or b"").decode()
        if known.get("group", DEFAULT_GROUP) != self.group:
            known, consumer = {}, ""
        if "at" in known:
            known.setdefault("state", "running" if consumer else "waiting")
        else:
            known["state"] = await self._state_without_info(id_)
        status = _status(id_, self.group, known, self._store.settings.queues.attempts)
        return await self._with_consumer(status, consumer) if consumer else status

    async def dead(self, most: int = 100) -> list[TaskStatus]:
        """The tasks that were given up, the latest first."""
        ids = await self._store.call("ZREVRANGE", self._keys.dead, 0, most - 1)
        found = await asyncio.gather(*(self.status(id_.decode()) for id_ in ids), return_exceptions=True)
        for status in found:
            if isinstance(status, BaseException) and not isinstance(status, TaskUnknown):
                raise status
        return [status for status in found if isinstance(status, TaskStatus)]

    async def consumers(self) -> dict[str, float]:
        """Who takes tasks from here, and for how many seconds each has its lease."""
        raw = await self._store.call("ZRANGE", self._keys.consumers, 0, -1, "WITHSCORES")
        now = await self._store.time_s()
        return {consumer.decode(): ends / 1000 - now for consumer, ends in raw}

    async def is_paused(self) -> bool:
        return bool(await self._store.call("EXISTS", self._keys.paused))

    # -- setting right ------------------------------------------------------------------------------------

    async def cancel(self, id_: str) -> bool:
        """True if it is cancelled now; False if it had ended before. TaskUnknown if there is none.

        One that runs is taken from its consumer, which is told; what it returns does not count any more.
        """
        keys = self._keys
        state = await cancel_task(
            self._store,
            info=keys.info(id_),
            result=keys.result(id_),
            running=keys.running,
            consumers=keys.consumers,
            delayed=keys.delayed,
            counts=keys.counts,
            group=self.group,
            id=id_,
            result_ms=self._result_ms,
            held_of=keys.held_of,
            finished=keys.finished,
            wake_of=keys.wake_of,
        )
        if state == b"unknown":
            raise TaskUnknown(id_, self.group)
        return state in (b"waiting", b"delayed", b"running")

    async def requeue(self, id_: str | None = None) -> int:
        """Try a task that was given up again, with fresh counts; or all of them. How many there were.
        TaskUnknown if the one that is named was not given up."""
        if id_ is not None:
            self._keys.info(id_)
            _, requeued = await self._requeue(id_)
            if not requeued:
                raise TaskUnknown(id_, self.group)
            return int(requeued)
        # Not those that are given up again meanwhile.
        left, number = await self._store.call("ZCARD", self._keys.dead), 0
        while left > 0:
            gone, requeued = await self._requeue("", min(left, _AT_ONCE))
            number += requeued
            left = left - gone if gone else 0
        return number

    async def drop(self, id_: str | None = None) -> int:
        """Forget a task that was given up, before its time; or all of them. How many there were.
        TaskUnknown if the one that is named was not given up."""
        if id_ is not None:
            self._keys.info(id_)
            if not await self._drop(id_):
                raise TaskUnknown(id_, self.group)
            return 1
        # Not those that are given up meanwhile.
        left, number = await self._store.call("ZCARD", self._keys.dead), 0
        while left > 0:
            gone = await self._drop("", min(left, _AT_ONCE))
            number += gone
            left = left - gone if gone else 0
        return number

    async def pause(self) -> None:
        """Hand out no more tasks, until `resume`. Those that run go on."""
        await self._store.call("SET", self._keys.paused, "paused")

    async def resume(self) -> bool:
        """True if it was paused."""
        keys = self._keys
        names: dict[str, Any] = {"paused": keys.paused, "idle": keys.idle, "wake_of": keys.wake_of}
        return bool(await resume_queue(self._store, most=1000, **keys.lists, **names))

    async def purge(self, priority: Priority | None = None) -> int:
        """Cancel all tasks that wait in the queue, or those of one priority. How many there were."""
        if priority is not None:
            check_priority(priority)
        number = 0
        for each in [priority] if priority else PRIORITIES:
            number += await self._purge(each)
        return number

    async def forget(self) -> bool:
        """Remove what is left of a group without tasks; False if it has tasks or consumers."""
        keys = self._keys
        outcome = await forget_group(
            self._store,
            **keys.lists,
            delayed=keys.delayed,
            dead=keys.dead,
            consumers=keys.consumers,
            idle=keys.idle,
            paused=keys.paused,
            counts=keys.counts,
            groups=keys.groups,
            group=self.group,
            rates_of=keys.rates_of,
        )
        return bool(outcome == b"forgotten")

    # -- inside -------------------------------------------------------------------------------------------

    @property
    def _result_ms(self) -> int:
        return self._store.settings.kept.result_s * 1000

    async def _state_without_info(self, id_: str) -> str:
        """Of one that is done, or was put there by somebody else. TaskUnknown if there is nothing."""
        [(state, _)] = await self._results.look([id_])
        if state == b"unknown":
            raise TaskUnknown(id_, self.group)
        return str(state.decode())

    async def _with_consumer(self, status: TaskStatus, consumer: str) -> TaskStatus:
        number = await self._store.call("HGET", self._keys.held(consumer), status.id)
        return structs.replace(status, consumer=consumer, started_at=int(number) / 1e6 if number else None)

    async def _requeue(self, id_: str, most: int = 1) -> tuple[int, int]:
        keys = self._keys
        names: dict[str, Any] = {"dead": keys.dead, "idle": keys.idle, "info_of": keys.info_of, "wake_of": keys.wake_of}
        gone, requeued = await requeue_dead(self._store, task=id_, most=most, **keys.lists, **names)
        return gone, requeued

    async def _drop(self, id_: str, most: int = 1) -> int:
        keys = self._keys
        gone: int = await drop_dead(self._store, dead=keys.dead, task=id_, most=most, info_of=keys.info_of)
        return gone

    async def _purge(self, priority: Priority) -> int:
        keys, number = self._keys, 0
        left = await self._store.call("LLEN", keys.queues[priority])
        while left > 0:
            entries, tasks = await purge_queue(
                self._store,
                queue=keys.queues[priority],
                running=keys.running,
                counts=keys.counts,
                priority=priority,
                most=min(left, _AT_ONCE),
                kept_ms=_PURGED_MS,
                finished=keys.finished,
                info_of=keys.info_of,
            )
            number += tasks
            left = left - entries if entries else 0
        return number


def _minute(at: int, raw: dict[bytes, bytes]) -> Minute:
    return Minute(at=at * 60, **{kind.decode(): int(number) for kind, number in raw.items()})


def _status(id_: str, group: str, known: dict[str, str], attempts: int) -> TaskStatus:
    return TaskStatus(
        id=id_,
        group=group,
        state=known["state"],  # type: ignore[arg-type]  # as the scripts write it
        priority=known.get("priority", "normal"),
        name=known.get("name", ""),
        pushed_at=_seconds(known.get("at")),
        failures=int(known.get("failures", 0)),
        crashes=int(known.get("crashes", 0)),
        attempts=int(known.get("attempts", attempts)),
        reason=known.get("reason", ""),
        progress=float(known["progress"]) if "progress" in known else None,
        note=known.get("note", ""),
    )


def _seconds(milliseconds: str | None) -> float | None:
    return None if milliseconds is None else int(milliseconds) / 1000
