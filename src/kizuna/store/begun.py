"""What has begun, and is awaited later, or by nobody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Awaitable[T], Generic[T]):
    """Goes on with `step` when it is awaited, once. A coroutine that is dropped before its first step, as by a task
    that is cancelled before its own, would be complained of; this is not."""

    __slots__ = ("_step",)

    def __init__(self, step: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._step = step

    def __await__(self) -> Generator[Any, Any, T]:
        return self._step().__await__()
