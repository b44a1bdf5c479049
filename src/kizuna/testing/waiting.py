"""Waiting for facts instead of for time."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


@overload
async def eventually(check: Callable[[], Awaitable[T]], *, within_s: float = 20.0, every_s: float = 0.02) -> T: ...
@overload
async def eventually(check: Callable[[], T], *, within_s: float = 20.0, every_s: float = 0.02) -> T: ...
async def eventually(check: Callable[[], Awaitable[T] | T], *, within_s: float = 20.0, every_s: float = 0.02) -> T:
    """Call `check` until it returns something true, and return that.

    It may be a plain or an async function, and may also say "not yet" by an AssertionError; any other
    exception goes up at once. A check that hangs is cut off. After `within_s` the test fails with the last
    thing that `check` said; it is called at least once, however short the time.
    """
    began = time.monotonic()
    last: object = "nothing: the first call did not return"
    try:
        async with asyncio.timeout(within_s) as deadline:
            while True:
                try:
                    outcome = check()
                    value: T = await outcome if inspect.isawaitable(outcome) else outcome
                    if value:
                        return value
                    last = f"{value!r}"
                except AssertionError as failure:
                    last = failure
                await asyncio.sleep(every_s)
    except TimeoutError:
        # A TimeoutError of the check itself is its own failure, not ours.
        if not deadline.expired():
            raise
    waited_s = time.monotonic() - began
    cause = last if isinstance(last, AssertionError) else None
    raise AssertionError(f"not true within {waited_s:.2f}s; {_name(check)} last said: {last}") from cause


def blocking_until(check: Callable[[], T | None], *, within_s: float = 20.0, every_s: float = 0.01) -> T:
    """`eventually` for code without an event loop: fixtures that set servers up."""
    ends_at = time.monotonic() + within_s
    while not (value := check()):
        if time.monotonic() > ends_at:
            raise AssertionError(f"not true within {within_s:g}s: {_name(check)}")
        time.sleep(every_s)
    return value


def _name(check: Callable[[], object]) -> str:
    return getattr(check, "__qualname__", repr(check))
