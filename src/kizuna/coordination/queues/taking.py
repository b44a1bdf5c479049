"""Asking the server for tasks, and what goes with it: tasks that are due, and those of consumers that are gone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kizuna.clock import milliseconds
from kizuna.coordination.queues.tasks import Delivery
from kizuna.store.batching import MOST_BYTES
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.coordination.queues.group_keys import GroupKeys
    from kizuna.coordination.queues.holding import TaskHolder
    from kizuna.store.client import Store

log = logging.getLogger("kizuna.coordination")

hand_out_tasks = Script.load(__package__, "hand_out_tasks")
start_due_tasks = Script.load(__package__, "start_due_tasks")
return_tasks = Script.load(__package__, "return_tasks")

MOST_AT_ONCE = 1_000
"""Tasks of one call: more would hold up the server."""
LOOK_ANYWAY_S = (1.0, 2.0)
"""How long who waits sleeps at most, by chance: a wake-up may have been lost with the consumer that it was for."""
_RETURNED_AT_ONCE = 200

Why = Literal["lapsed", "died", "left"]


class Shares(NamedTuple):
    """The part of all tasks handed out that is kept for the lower ones."""

    normal: float
    low: float


class Handed(NamedTuple):
    """What hand_out_tasks.lua said."""

    word: bytes
    due_ms: int
    lapsed: bytes
    number: int
    deliveries: list[Delivery]


class Taking:
    """Asks for tasks on behalf of one holder, and does what nobody else would: tasks whose time has come, and those of
    consumers that are gone, go back to their queues."""

    def __init__(self, store: Store, keys: GroupKeys, holder: TaskHolder, shares: Shares, *, stays: bool) -> None:
        self._store, self._keys, self._holder = store, keys, holder
        self._fixed: dict[str, Any] = {
            **keys.lists,
            "delayed": keys.delayed,
            "consumers": keys.consumers,
            "running": keys.running,
            "held": keys.held(holder.id),
            "idle": keys.idle,
            "paused": keys.paused,
            "counts": keys.counts,
            "groups": keys.groups,
            "group": keys.group,
            "consumer": holder.id,
            "lease_ms": milliseconds(holder.lease_s),
            "most_bytes": MOST_BYTES,
            "stays": int(stays),
            "normal_share": shares.normal,
            "low_share": shares.low,
            "result_ms": store.settings.kept.result_s * 1000,
            "info_of": keys.info_of,
        }

    async def ask(self, most: int, *, waits: bool) -> Handed:
        word, due_ms, lapsed, number, tasks = await hand_out_tasks(
            self._store, most=min(most, MOST_AT_ONCE), waits=int(waits), **self._fixed
        )
        holder, number = self._holder, int(number)
        return Handed(word, due_ms, lapsed, number, [Delivery(holder, number, task) for task in tasks])

    async def tidy(self, handed: Handed) -> bool:
        """True if there may be more tasks now."""
        if handed.lapsed:
            await give_back(self._store, self._keys, handed.lapsed.decode(), "lapsed")
        if handed.due_ms == 0:
            await self._start_due()
        return bool(handed.lapsed) or handed.due_ms == 0

    async def no_longer_waits(self) -> bool:
        """True if somebody has woken us meanwhile: then there is a task that others were not told of."""
        return not await self._store.call("ZREM", self._keys.idle, self._holder.id)

    async def _start_due(self) -> None:
        keys = self._keys
        names: dict[str, Any] = {
            "delayed": keys.delayed,
            "idle": keys.idle,
            "info_of": keys.info_of,
            "wake_of": keys.wake_of,
        }
        await start_due_tasks(self._store, most=MOST_AT_ONCE, **keys.lists, **names)


async def give_back(store: Store, keys: GroupKeys, consumer: str, why: Why) -> int:
    """Put the tasks of a consumer back; `why` as in return_tasks.lua. How many there were."""
    settings, number = store.settings, 0
    word = b"more"
    while word == b"more":
        word, returned, given_up = await return_tasks(
            store,
            **keys.lists,
            dead=keys.dead,
            consumers=keys.consumers,
            running=keys.running,
            held=keys.held(consumer),
            idle=keys.idle,
            consumer=consumer,
            why=why,
            most=_RETURNED_AT_ONCE,
            crashes=settings.queues.crashes,
            dead_ms=settings.kept.dead_task_s * 1000,
            finished=keys.finished,
            info_of=keys.info_of,
            rates_of=keys.rates_of,
            wake_of=keys.wake_of,
        )
        number += returned + given_up
    if number and why != "left":
        log.warning("tasks taken back", extra={"consumer": consumer, "why": why, "tasks": number, "group": keys.group})
    return number
