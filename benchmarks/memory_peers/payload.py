"""What is remembered in all measurements: the same for everybody."""

from __future__ import annotations

from typing import Any, NamedTuple

ITEMS_PER_CONTEXT = 50
BATCH = 100
TTL_S = 3_600
TYPES = ("fact", "plan", "question", "observation", "result")
PRIORITIES = 10


class Draft(NamedTuple):
    """Where an item is to stand. What it says is the same in all: `CONTENT` and `METADATA`."""

    type: str
    context: str
    priority: int


# 330 bytes of JSON, without blanks.
CONTENT: dict[str, Any] = {
    "text": "The customer wants the delivery on Thursday morning, before the shop opens; the last one came late, "
    "and she would rather fetch it herself than wait for that.",
    "entities": ["customer:4711", "order:2024-00815", "depot:Köln"],
    "confidence": 0.87,
    "seen": 1742724000123,
    "open": True,
    "next": {"tool": "calendar", "arguments": {"day": 4}},
}
CHANGED: dict[str, Any] = {**CONTENT, "confidence": 0.91}
# 60 bytes.
METADATA: dict[str, Any] = {"source": "conversation", "agent": "planner-3-west", "turn": 17}


def draft(number: int) -> Draft:
    """Of the item of this number: fifty in a context, of all types and priorities."""
    return Draft(TYPES[number % len(TYPES)], context_of(number), 1 + number % PRIORITIES)


def context_of(number: int) -> str:
    return f"context-{number // ITEMS_PER_CONTEXT}"
