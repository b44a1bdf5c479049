"""The functions that a worker runs, and what they may say besides a result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kizuna.coordination.handlers import Failed, Handler, handler_of
from kizuna.errors import WrongValue

if TYPE_CHECKING:
    from kizuna.coordination.queues.tasks import Delivery

EVERY_NAME = "*"
"""The name of the handler that takes what no other one is there for."""

# A thread that waits for a loop that no longer runs would keep the process from ending.
_TOLD_WITHIN_S = 30.0


class GiveUp(Failed):
    """Raised by a handler: another attempt would not help. The task is a dead letter at once, with this reason."""


class RetryIn(Failed):
    """Raised by a handler: this attempt has failed, and another one makes sense after so many seconds."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(seconds, reason)
        self.seconds, self.reason = seconds, reason

    def __str__(self) -> str:
        return self.reason or f"it asked to be tried again in {self.seconds:g}s"


class DeliveryInThread:
    """A delivery as a plain function sees it: the same facts, and progress without `await`."""

    def __init__(self, delivery: Delivery, loop: asyncio.AbstractEventLoop) -> None:
        self.id, self.name, self.attempt = delivery.id, delivery.name, delivery.attempt
        self.priority, self.raw, self.payload = delivery.priority, delivery.raw, delivery.payload
        self.timeout_s = delivery.timeout_s
        self._delivery, self._loop = delivery, loop

    def progress(self, fraction: float, note: str = "") -> None:
        """Let others know how far it is, and return when they can. LeaseLost if the task is no longer ours: end then,
        nobody else can end a thread."""
        asyncio.run_coroutine_threadsafe(self._delivery.progress(fraction, note), self._loop).result(_TOLD_WITHIN_S)


class Handlers:
    """Which function takes the tasks of which name. The empty name is that of tasks without one."""

    def __init__(self) -> None:
        self._by_name: dict[str, Handler] = {}

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """WrongValue if there is one for this name, or if it cannot be called as a handler."""
        if name in self._by_name:
            raise WrongValue(f"the handler for {described(name)}", "a second one", "one function for each name")
        self._by_name[name] = handler_of(function, "delivery")

    def find(self, name: str) -> Handler:
        """That of the name, or else the one for all; GiveUp if there is neither."""
        handler = self._by_name.get(name) or self._by_name.get(EVERY_NAME)
        if handler is None:
            raise GiveUp(f"no handler for {described(name)}; this worker has handlers for {self}")
        return handler

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def __str__(self) -> str:
        return ", ".join(map(described, sorted(self._by_name)))


def described(name: str) -> str:
    return {"": "tasks without a name", EVERY_NAME: "tasks of any name"}.get(name, f"{name!r}")
