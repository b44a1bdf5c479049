"""All keys of one group, built once: what is under way a thousand times a second must not spell them each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kizuna.coordination import keys
from kizuna.coordination.queue_names import PRIORITIES, queue_key
from kizuna.errors import WrongValue

if TYPE_CHECKING:
    from kizuna.store.keys import Roots


class GroupKeys:
    """`info_of` and the like are what the keys of that family begin with: the name follows."""

    def __init__(self, roots: Roots, group: str) -> None:
        """IllegalName if the group cannot be part of a key."""
        root = roots.of(group)
        self.group, self.root = group, root
        self.queues = {priority: queue_key(root, group, priority) for priority in PRIORITIES}
        self.delayed = keys.QUEUES_DELAYED.build(root, group=group)
        self.dead = keys.QUEUES_DEAD.build(root, group=group)
        self.consumers = keys.QUEUES_CONSUMERS.build(root, group=group)
        self.running = keys.QUEUES_RUNNING.build(root, group=group)
        self.idle = keys.QUEUES_IDLE.build(root, group=group)
        self.paused = keys.QUEUES_PAUSED.build(root, group=group)
        self.counts = keys.QUEUES_COUNTS.build(root, group=group)
        self.groups = keys.QUEUES_GROUPS.build(root)
        self.finished = keys.QUEUES_FINISHED.build(root, group=group)
        self.info_of = keys.TASK_INFO.build(root, task="x")[:-1]
        self.result_of = keys.TASK_RESULT.build(root, task="x")[:-1]
        self.held_of = keys.QUEUES_HELD.build(root, group=group, consumer="x")[:-1]
        self.wake_of = keys.QUEUES_WAKE.build(root, group=group, consumer="x")[:-1]
        self.rates_of = keys.QUEUES_RATES.build(root, group=group, minute="x")[:-1]

    def info(self, task: str) -> str:
        """IllegalName if no task can be called so."""
        return keys.TASK_INFO.build(self.root, task=task)

    def result(self, task: str) -> str:
        return keys.TASK_RESULT.build(self.root, task=task)

    def held(self, consumer: str) -> str:
        return keys.QUEUES_HELD.build(self.root, group=self.group, consumer=consumer)

    @property
    def lists(self) -> dict[str, Any]:
        """The queues, by the names that scripts have for them."""
        return {priority: self.queues[priority] for priority in PRIORITIES}


def check_priority(priority: str) -> None:
    if priority not in PRIORITIES:
        raise WrongValue("priority", repr(priority), "high, normal or low")
