"""Commands that print what comes, as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import click

T = TypeVar("T")

count_option = click.option("--count", "most", type=click.IntRange(1), metavar="N", help="End after so many.")


async def show_until(
    coming: AsyncIterator[T], show: Callable[[T], None], most: int | None, for_s: float | None
) -> None:
    """At most so many, and so long; or until no more come."""
    import asyncio

    left = most
    try:
        async with asyncio.timeout(for_s) as limit:
            while left is None or left > 0:
                show(await anext(coming))
                left = None if left is None else left - 1
    except StopAsyncIteration:
        return
    except TimeoutError:
        if not limit.expired():
            raise
