"""What queues are called: those of the default group have the short names."""

from __future__ import annotations

from typing import Literal

from kizuna.coordination.keys import QUEUE, QUEUE_OF_GROUP

Priority = Literal["high", "normal", "low"]
PRIORITIES: tuple[Priority, ...] = ("high", "normal", "low")
DEFAULT_GROUP = "default"


def queue_key(root: str, group: str, priority: str) -> str:
    if group == DEFAULT_GROUP:
        return QUEUE.build(root, priority=priority)
    return QUEUE_OF_GROUP.build(root, group=group, priority=priority)
