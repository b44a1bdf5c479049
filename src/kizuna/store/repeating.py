"""Steps that may be repeated because they carry an identity: whoever calls them need not care for a lost answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kizuna.errors import NotSent, OutcomeUnknown

T = TypeVar("T")
Step = Callable[[], Awaitable[T]]

_ATTEMPTS = 3


async def until_known(
    step: Step[T], again: Step[T] | None = None, *, attempts: int = _ATTEMPTS, deadline: float = math.inf
) -> T:
    """Take the step, and take it again when its answer was lost; `again` is for a step that is another then. Raises
    OutcomeUnknown if that goes on, or the deadline on the loop's clock has passed."""
    try:
        return await step()
    except OutcomeUnknown as error:
        unknown = error
    for _ in range(attempts - 1):
        if asyncio.get_running_loop().time() >= deadline:
            break
        try:
            return await (again or step)()
        except (OutcomeUnknown, NotSent):
            # What it was, it stays: the first may have happened, whatever became of this one.
            continue
    raise unknown
