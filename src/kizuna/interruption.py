"""Ending a block of code from outside, as `asyncio.timeout` does it."""

from __future__ import annotations

import asyncio


class Interruption:
    """Cancels the task that made it, at most once, and can tell that from a cancellation by anybody else."""

    __slots__ = ("_cancels_before", "_done", "_task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("what may have to be interrupted can only be entered inside a task")
        self._task, self._cancels_before, self._done = task, task.cancelling(), False

    def cancel(self) -> None:
        """Not by the task itself: it knows, and the cancellation would come out after the block."""
        if asyncio.current_task() is self._task:
            return
        # cancel() returns False if the task is over: then the block is ended by another one.
        self._done = self._done or self._task.cancel()

    def take_back(self) -> bool:
        """Whether it was cancelled by us, and by nobody else."""
        if not self._done:
            return False
        self._done = False
        return self._task.uncancel() <= self._cancels_before
