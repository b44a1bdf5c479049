"""Those who take replies without a future for each: a future, and the task that awaits it, cost more than a command.

The wire gives a reply to anything that has these few methods of a future.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

_MISSING = object()


class Taker(ABC):
    """Told of one reply, once, and in the middle of reading: to be short about it, and not to raise."""

    __slots__ = ()

    def done(self) -> bool:
        """Whether the reply is no longer wanted."""
        return False

    @abstractmethod
    def set_result(self, reply: Any) -> None: ...

    @abstractmethod
    def set_exception(self, error: BaseException) -> None: ...

    def exception(self) -> None:  # noqa: B027 - there is nothing to do
        """Of a future, this says that the error was seen."""

    def cancelled(self) -> bool:
        return False

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:  # noqa: B027 - nor here
        """Asked for by who wants to hear of a cancellation, which there is none of."""


class Nobody(Taker):
    """Stands in the place of a taker that was told already: what comes after that is dropped."""

    __slots__ = ()

    def done(self) -> bool:
        return True

    def set_result(self, reply: Any) -> None:
        """Nobody hears it."""

    def set_exception(self, error: BaseException) -> None:
        """Nor that."""


class Together:
    """The replies to some commands: when all are there, `then` is called with their list, which has the error in the
    place of one that failed. It is to be short, too, and not to raise.

    Of an entry in the line of a wire, it stands for all commands: then `came` is how many were answered.
    """

    __slots__ = ("_missing", "_replies", "_then", "came")

    def __init__(self, number: int, then: Callable[[list[Any]], None]) -> None:
        self.came = 0
        self._replies: list[Any] = [_MISSING] * number
        self._missing, self._then = number, then

    def place(self, number: int) -> Taker:
        """For one of the commands by itself."""
        return _Place(self, number)

    def has(self, number: int) -> bool:
        return self._replies[number] is not _MISSING

    def take(self, number: int, reply: Any) -> None:
        if self.has(number):
            return
        self._replies[number] = reply
        self._missing -= 1
        if not self._missing:
            self._then(self._replies)

    def put(self, number: int, reply: Any) -> None:
        """`take` for one that is not the last."""
        if self._replies[number] is _MISSING:
            self._replies[number] = reply
            self._missing -= 1

    # -- as one entry in the line -----------------------------------------------------------------------

    def done(self) -> bool:
        return not self._missing

    def set_exception(self, error: BaseException) -> None:
        """For all that were not answered yet; what comes of them is dropped."""
        for number in range(self.came, len(self._replies)):
            self.take(number, error)

    def exception(self) -> None:
        """Of a future, this says that the error was seen."""


class _Place(Taker):
    __slots__ = ("_number", "_together")

    def __init__(self, together: Together, number: int) -> None:
        self._together, self._number = together, number

    def done(self) -> bool:
        return self._together.has(self._number)

    def set_result(self, reply: Any) -> None:
        self._together.take(self._number, reply)

    def set_exception(self, error: BaseException) -> None:
        self._together.take(self._number, error)
