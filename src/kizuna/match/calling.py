"""Functions of other people, for matches, evaluation and servers: what they are called, and what they return."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def name_of(function: Callable[..., Any]) -> str:
    """Also of an object that can be called, which has the name of its class."""
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


async def result_of(returned: Iterable[T] | Awaitable[Iterable[T]]) -> list[T]:
    """Of an async one as well. RuntimeError if something was cancelled that it waited for."""
    if not inspect.isawaitable(returned):
        return list(returned)
    try:
        return list(await returned)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Not we were: something was that they waited for, which is their failure.
        raise RuntimeError("what it waited for was cancelled") from error
