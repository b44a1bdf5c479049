"""The functions that a worker runs, and what they may say besides a result."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kizuna.errors import WrongValue

if TYPE_CHECKING:
    from kizuna.coordination.queues.tasks import Delivery

EVERY_NAME = "*"
"""The name of the handler that takes what no other one is there for."""

# A reason is for people; it is stored with the task, and a message may quote a whole document.
_LONGEST_REASON = 1000
# A thread that waits for a loop that no longer runs would keep the process from ending.
_TOLD_WITHIN_S = 30.0


class Failed(Exception):
    """Raised by a handler: this attempt has failed, for this reason. Any other exception says so, too, but is told with
    its type and the line it comes from."""


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


class Handler(NamedTuple):
    function: Callable[..., Any]
    is_async: bool
    takes_delivery: bool


class Handlers:
    """Which function takes the tasks of which name. The empty name is that of tasks without one."""

    def __init__(self) -> None:
        self._by_name: dict[str, Handler] = {}

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """WrongValue if there is one for this name, or if it cannot be called as a handler."""
        if name in self._by_name:
            raise WrongValue(f"the handler for {described(name)}", "a second one", "one function for each name")
        self._by_name[name] = handler_of(function)

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


def handler_of(function: Callable[..., Any]) -> Handler:
    """A handler takes the payload, and also the delivery if it has a parameter `delivery`."""
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
    return Handler(function, is_async, _takes_delivery(function))


def _takes_delivery(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions that are written in C do not tell
        return False
    takes_delivery = "delivery" in signature.parameters
    try:
        signature.bind("payload", **({"delivery": None} if takes_delivery else {}))
    except TypeError as error:
        function_name = getattr(function, "__qualname__", repr(function))
        expected = f"one that takes the payload, and perhaps a parameter `delivery` ({error})"
        raise WrongValue("a handler", f"{function_name}{signature}", expected) from None
    return takes_delivery


def reason_of(error: BaseException) -> str:
    """What went wrong and where, in one line: `ValueError: no such size (images.py:12 in resize)`."""
    what = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    if len(what) > _LONGEST_REASON:
        what = what[:_LONGEST_REASON] + "…"
    return f"{what} ({_place_of(error)})" if error.__traceback__ else what


def _place_of(error: BaseException) -> str:
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    code = frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{line} in {code.co_name}"
