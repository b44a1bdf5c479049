"""What is there, and what was told, by ids."""

from __future__ import annotations

from typing import Any

from kizuna.memory.memory import Memory


async def ids(m: Memory, **asked: Any) -> list[str]:
    """Of all that is found, on however many pages."""
    return [item.id async for item in m.all(**asked)]


async def rest_of_list(m: Memory, cursor: str, **query: Any) -> list[str]:
    """The ids of what is on the pages after this one."""
    ids: list[str] = []
    while cursor:
        page = await m.list(**query, cursor=cursor)
        ids += [item.id for item in page.items]
        cursor = page.cursor
    return ids


async def what_was_told(m: Memory, since: str) -> list[tuple[str, str]]:
    """Kind and id of each event after this cursor."""
    return [(event.kind, event.id) for event in (await m.events_since(since, limit=10_000)).events]
