"""Things that come one by one, taken some at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

T = TypeVar("T")


async def in_chunks(values: AsyncIterator[T], size: int) -> AsyncIterator[list[T]]:
    """Lists of so many, of which the last may be shorter; none is empty."""
    chunk: list[T] = []
    async for value in values:
        chunk.append(value)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
