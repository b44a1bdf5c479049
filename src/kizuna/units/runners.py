"""Tasks that run executions, one after the other for as long as they do not have to wait for anything.

    run, run, run ──> runner: a, b, c …            nobody waits: one task for all
                      runner: a, b … (waits)       whoever waits keeps its task
                      another runner: c …          and the rest gets another

A task for each would cost more than all else about a short request. Whoever is run has its task to itself from its
beginning to its end, and finds no context variable that another one has set.
"""

from __future__ import annotations

import asyncio
import operator
from collections import deque
from contextvars import Context, copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kizuna.units.executions import Execution


class Runners:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Execution] = deque()
        self._is_expected = False
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, execution: Execution) -> None:
        """Soon, in the next turn of the loop."""
        self._waiting.append(execution)
        if not self._is_expected:
            self._begin()

    def _begin(self) -> None:
        self._is_expected = True
        task = self._loop.create_task(self._run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Behind its first step: by then it has run all, or had to stop.
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_expected = False
        if self._waiting:
            self._begin()

    async def _run(self) -> None:
        task, pristine = asyncio.current_task(), copy_context()
        assert task is not None  # noqa: S101 - we are one
        name = task.get_name()
        while self._waiting:
            execution = self._waiting.popleft()
            execution.task = task
            await execution.run()
            if _is_cancelled(task) or task.get_name() != name or _differ(pristine):
                # What this one has left behind is not for the next.
                return


def _is_cancelled(task: asyncio.Task[None]) -> bool:
    # The second: cancelled, and taken back before it waited for anything. Before Python 3.13, its next wait ends so.
    return task.cancelling() > 0 or getattr(task, "_must_cancel", False)


def _differ(pristine: Context) -> bool:
    """Whether a context variable is another than in the beginning. By identity: values may be equal and yet not the
    same, or not be comparable at all."""
    now = copy_context()
    if len(now) != len(pristine):
        return True
    return len(now) > 0 and any(map(operator.is_not, now.values(), pristine.values()))
