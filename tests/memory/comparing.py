"""What is true of memory all the time: compared with the model. Every index is exact, lists show what they should, and
what is told is what happened."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.memory.exactness import complaints, read_below
from tests.memory.model import GLOBAL, Model, ModelItem, Told

from kizuna.app import Kizuna
from kizuna.memory.item import Item
from kizuna.settings import MemorySettings
from kizuna.testing.resp import Conversation

TICK_S = 100
LEAST, USUAL, MOST, STRETCH = 2, 10, 80, 5
LIVES = MemorySettings(
    item_s=USUAL * TICK_S,
    item_least_s=LEAST * TICK_S,
    item_most_s=MOST * TICK_S,
    item_stretch=STRETCH,
    context_least_s=10 * TICK_S,
    # By hand, and by nobody else.
    sweep_every_s=3600,
)

IDS = [f"i{number}" for number in range(7)]
TYPES = ["t0", "t1"]
CONTEXTS = ["c0", "c1"]
PLACES = [GLOBAL, *CONTEXTS]


class Comparison:
    """Memory on a root of its own, and the model beside it."""

    def __init__(self, k: Kizuna, conversation: Conversation, root: str, began_s: float) -> None:
        self.k, self.m, self.conversation, self.root = k, k.memory, conversation, root
        self.began_s = began_s
        self.model = Model(LEAST, USUAL, MOST, STRETCH)
        self.strangers: set[str] = set()
        """Items that an outsider wrote, and that nobody has taken in yet."""
        self.raised = False
        """Whether a generation was, and nobody has swept since."""
        self.cursor = "0"
        self.told: Counter[str] = Counter()
        """What was told, in all."""

    @property
    def moved_s(self) -> int:
        return self.model.now * TICK_S

    async def compare_all(self) -> None:
        await self.compare_events()
        await self.compare_items()
        await self.compare_contexts()
        await self.compare_lists()
        self.compare_indexes()

    async def compare_events(self) -> None:
        found = await self.m.events_since(self.cursor, limit=1000)
        self.cursor = found.cursor
        told = Counter(Told(event.kind, event.id, event.reason) for event in found.events)
        for event in found.events:
            # Something that had ended was come across.
            if told[(one := Told(event.kind, event.id, event.reason))] > self.model.told.count(one):
                self.model.notice(one)
        expected = Counter(self.model.told)
        for one in self.model.maybe:
            if told[one] > expected[one]:
                expected[one] += 1
        assert told == expected, f"too much: {dict(told - expected)}; too little: {dict(expected - told)}"
        self.told.update(f"{one.kind} {one.reason}".strip() for one in told.elements())
        self.model.told.clear()
        self.model.maybe.clear()

    async def compare_items(self) -> None:
        wanted = [*IDS, *(id_ for id_ in self.model.items if id_ not in IDS)]
        for id_, found in zip(wanted, await self.m.get_many(wanted), strict=True):
            item = self.model.alive(id_)
            assert (found is None) == (item is None), id_
            if item is not None and found is not None:
                self.assert_same(item, found)

    async def compare_contexts(self) -> None:
        for id_, found in zip(CONTEXTS, await asyncio.gather(*map(self.m.contexts.get, CONTEXTS)), strict=True):
            context = self.model.context(id_)
            assert (found is None) == (context is None), id_
            if context is not None and found is not None:
                assert (found.type, found.version) == (context.type, context.version)
                assert (found.is_active, found.at_end) == (context.active, context.at_end)
                self.assert_ends(context.ends, found.expires_at)
        # Who lists contexts and comes across one that has ended tells of that, and leaves its items to the sweeper.
        if all(map(self.model.context, self.model.contexts)):
            await self.compare_lists_of_contexts()

    async def compare_lists_of_contexts(self) -> None:
        queries: list[tuple[str | None, bool | None]] = [(None, None), ("t0", None), ("t1", True), (None, False)]
        pages = await asyncio.gather(*(self.m.contexts.list(type=type_, active=active) for type_, active in queries))
        for (type_, active), page in zip(queries, pages, strict=True):
            there = [c for c in self.model.contexts.values() if type_ in (None, c.type) and active in (None, c.active)]
            assert [context.id for context in page.contexts] == sorted(context.id for context in there)

    async def compare_lists(self) -> None:
        queries: list[dict[str, Any]] = [{}, {"text": "text"}, {"priority": (5, 7)}, {"type": "t0", "priority": (1, 5)}]
        queries += [{"type": type_} for type_ in TYPES] + [{"context": context} for context in PLACES]
        queries += [{"type": "t1", "context": GLOBAL}, {"context": "c0", "priority": (6, 10), "text": "text"}]
        if not self.model.unnoticed():
            assert await self.listed(queries) == [self.model.listed(**query) for query in queries]
            return
        for query in queries:
            # A list that comes across what has ended may put it away, and with that end what depends on it.
            assert await self.listed([query]) == [self.model.listed(**query)], query
            await self.compare_events()

    def compare_indexes(self) -> None:
        ended = self.model.unnoticed() | self.strangers
        wrong = complaints(read_below(self.conversation, self.root))
        shown = [text for text in wrong if not any(f"b'{id_}'" in text for id_ in ended)]
        if self.raised:
            shown = [text for text in shown if not text.startswith("memory:generations-raised")]
        assert shown == []

    def assert_same(self, item: ModelItem, found: Item) -> None:
        assert (found.id, found.type, found.context) == (item.id, item.type, item.context)
        assert (found.priority, found.content, found.version) == (item.priority, item.content, item.version)
        assert (found.depends_on, found.generation) == (item.depends_on, item.generation)
        assert found.created_at + self.moved_s == pytest.approx(item.born, abs=0.0005)
        self.assert_ends(item.ends, found.expires_at)

    def assert_ends(self, ends: int, expires_at: float) -> None:
        assert -0.002 <= expires_at + self.moved_s - self.began_s - ends * TICK_S < TICK_S

    async def listed(self, queries: list[dict[str, Any]]) -> list[list[str]]:
        pages = await asyncio.gather(*(self.m.list(**query) for query in queries))
        assert all(not page.cursor for page in pages)
        return [[item.id for item in page.items] for page in pages]
