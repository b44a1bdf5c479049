"""All that can be done to items and contexts, while time moves: thrown with a seed, and compared with the model after
each step."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest
from tests.memory.comparing import CONTEXTS, IDS, PLACES, TICK_S, TYPES, Comparison
from tests.memory.model import ModelContext, ModelItem
from tests.memory.moving_time import move_time

from kizuna.app import Kizuna
from kizuna.errors import ContextExists, ContextMissing, ItemExists, ItemMissing, VersionConflict
from kizuna.memory.item import Item
from kizuna.testing.resp import Conversation

PRIORITIES = [1, 5, 5, 7, 10]
# Below the least and above the most among them.
TTLS = [None, None, 1, 3, 20, 500]
# No tenth of these meets the end of a tick: whether a context lives longer by its use is never a matter of moments.
CONTEXT_LIVES = [15, 25]
CONTENTS: list[Any] = [0, 1, "some text", ["more text"]]
AT_ENDS: list[Any] = ["delete", "leave"]


class Walk(Comparison):
    """One run of steps; what was done is in `notes`."""

    def __init__(self, k: Kizuna, conversation: Conversation, root: str, seed: int, began_s: float) -> None:
        super().__init__(k, conversation, root, began_s)
        self.dice = random.Random(seed)
        self.made = 0
        self.notes: list[str] = []

    async def step(self) -> None:
        """One of them, and everything is compared."""
        steps, weights = zip(*self.steps().items(), strict=True)
        (step,) = self.dice.choices(steps, weights)
        self.notes.append(step.__name__)
        self.notes[-1] += f" {await step()}"
        await self.compare_all()

    def steps(self) -> dict[Callable[[], Coroutine[Any, Any, str]], float]:
        return {
            self.write: 7,
            self.update: 4,
            self.change: 1,
            self.touch: 2,
            self.move: 2,
            self.copy: 1,
            self.delete: 1,
            self.something_changed: 1,
            self.raise_generation: 0.7,
            self.write_context: 3,
            self.change_context: 1.5,
            self.touch_context: 0.5,
            self.delete_context: 0.7,
            self.outsider_writes: 1,
            self.outsider_deletes: 0.5,
            self.time_goes_by: 4,
            self.sweep: 1,
        }

    # -- what is done to items ------------------------------------------------------------------------------

    async def write(self) -> str:
        id_, type_, content, context = self.pick(IDS, TYPES, CONTENTS, PLACES)
        priority, ttl, replaces = self.dice.choice(PRIORITIES), self.dice.choice(TTLS), self.dice.random() < 0.4
        others = [other for other in (*IDS, "x") if other != id_]
        depends_on = tuple(self.dice.sample(others, self.dice.choice([0, 0, 0, 1, 1, 2])))
        generation = self.dice.choice([None, None, None, "g"])
        options: dict[str, Any] = {"context": context, "priority": priority, "ttl_s": in_s(ttl)}
        options |= {"depends_on": depends_on, "generation": generation}
        did = f"{id_} {type_} {options} {replaces=}"
        writing = self.m.put(id_, type_, content, **options) if replaces else None
        if writing is None:
            writing = self.m.create(type_, content, id=id_, **options)
            if self.model.alive(id_) is not None:
                await refused(ItemExists, writing)
                return did
        life = self.model.life(priority, ttl)
        new = ModelItem(id_, type_, content, context, priority, life, 0, depends_on, generation)
        self.written(new, await writing, replaces=replaces)
        return did

    async def update(self) -> str:
        id_, expected = self.one_and_version()
        choices: dict[str, list[Any]] = {
            "type": [None, *TYPES],
            "priority": [None, *PRIORITIES],
            "content": [None, *CONTENTS],
        }
        drawn = {name: self.dice.choice(values) for name, values in choices.items()}
        fields = {name: value for name, value in drawn.items() if value is not None}
        ttl = self.dice.choice(TTLS)
        if await self.may(id_, self.m.update(id_, **fields, ttl_s=in_s(ttl), expected_version=expected), expected):
            self.model.change(id_, ttl=ttl, **fields)
        return f"{id_} {fields} {ttl=} {expected=}"

    async def change(self) -> str:
        id_ = self.one()
        if await self.may(id_, self.m.change(id_, lambda content: [content]), None):
            self.model.change(id_, content=[self.model.items[id_].content])
        return id_

    async def touch(self) -> str:
        id_, ttl = self.one(), self.dice.choice(TTLS)
        if await self.may(id_, self.m.touch(id_, ttl_s=in_s(ttl)), None):
            self.model.touch(id_, ttl)
        return f"{id_} {ttl=}"

    async def move(self) -> str:
        (id_, expected), to = self.one_and_version(), self.dice.choice(PLACES)
        if await self.may(id_, self.m.move(id_, to, expected_version=expected), expected):
            self.model.change(id_, context=to)
        return f"{id_} to {to} {expected=}"

    async def copy(self) -> str:
        id_, to, new_id = self.one(), self.dice.choice(PLACES), self.new_id("copy")
        original, copying = self.model.alive(id_), self.m.copy(id_, to, new_id=new_id)
        if original is None:
            await refused(ItemMissing, copying)
        else:
            fields = (original.type, original.content, to, original.priority, self.model.clamped(original.life), 0)
            new = ModelItem(new_id, *fields, original.depends_on, original.generation)
            self.written(new, await copying, replaces=False)
        return f"{id_} to {to} as {new_id}"

    async def delete(self) -> str:
        id_, expected = self.one_and_version()
        item, deleting = self.model.alive(id_), self.m.delete(id_, expected_version=expected)
        if item is None:
            assert not await deleting
        elif expected not in (None, item.version):
            await self.assert_conflict(item, expected, deleting)
        else:
            assert await deleting
            self.strangers.discard(id_)
            self.model.delete(id_)
        return f"{id_} {expected=}"

    async def something_changed(self) -> str:
        name = self.dice.choice([*IDS, "x", "x", "nothing"])
        assert await self.m.changed(name) >= self.model.changed(name)
        return name

    async def raise_generation(self) -> str:
        assert await self.m.raise_generation("g") == self.model.raise_generation("g")
        self.raised = True
        return ""

    # -- what is done to contexts -----------------------------------------------------------------------------

    async def write_context(self) -> str:
        id_, type_, life, at_end = self.pick(CONTEXTS, TYPES, CONTEXT_LIVES, AT_ENDS)
        active = self.dice.random() < 0.6
        if id_ in self.model.contexts and self.model.context(id_) is None:
            # Its items would end step by step, behind the new one's back.
            await self.sweep()
        creating = self.m.contexts.create("name", type_, id=id_, ttl_s=in_s(life), at_end=at_end, active=active)
        if self.model.context(id_) is not None:
            await refused(ContextExists, creating)
        else:
            await creating
            self.model.write_context(ModelContext(id_, type_, life, 0, at_end, active))
        return f"{id_} {type_} {life=} {at_end=} {active=}"

    async def change_context(self) -> str:
        id_, type_ = self.dice.choice(CONTEXTS), self.dice.choice([None, *TYPES])
        life, at_end = self.dice.choice([None, *CONTEXT_LIVES]), self.dice.choice([None, *AT_ENDS])
        active = self.dice.choice([None, True, False])
        changing: Coroutine[Any, Any, Any]
        if active is None:
            changing = self.m.contexts.update(id_, type=type_, ttl_s=in_s(life), at_end=at_end)
            given = {"type": type_, "at_end": at_end}
        else:
            changing = self.m.contexts.activate(id_) if active else self.m.contexts.deactivate(id_)
            given, life = {"active": active}, None
        if self.model.context(id_) is None:
            await refused(ContextMissing, changing)
        else:
            await changing
            fields = {name: value for name, value in given.items() if value is not None}
            self.model.change_context(id_, ttl=life, **fields)
        return f"{id_} {given} {life=}"

    async def touch_context(self) -> str:
        id_ = self.dice.choice(CONTEXTS)
        if self.model.context(id_) is None:
            await refused(ContextMissing, self.m.contexts.touch(id_))
        else:
            await self.m.contexts.touch(id_)
            self.model.touch_context(id_)
        return id_

    async def delete_context(self) -> str:
        id_, items = self.dice.choice(CONTEXTS), self.dice.choice([None, *AT_ENDS])
        await self.sweep_what_is_outdated()
        there = self.model.context(id_) is not None
        assert await self.m.contexts.delete(id_, items=items) == there
        if there:
            self.model.delete_context(id_, items)
        return f"{id_} {items=}"

    # -- what others do -------------------------------------------------------------------------------------

    async def outsider_writes(self) -> str:
        """As their protocol has it: no version, no bounds, nothing but the eight fields and four indexes."""
        await self.sweep()
        id_, now_ms = self.new_id("outsider"), round(await self.k.store.time_s() * 1000)
        type_, context, priority = self.pick(TYPES, PLACES, PRIORITIES)
        life = self.dice.choice([1, 5, 200])
        below, ends_ms = f"{self.root}:memory:short", now_ms + life * TICK_S * 1000
        fields: dict[str, Any] = {"id": id_, "type": type_, "contextId": context, "priority": priority}
        fields |= {"content": '"text"', "metadata": "{}", "createdAt": now_ms, "expiresAt": ends_ms}
        call = self.conversation.call
        call("HSET", f"{below}:item:{id_}", *itertools.chain(*fields.items()))
        call("PEXPIREAT", f"{below}:item:{id_}", ends_ms)
        call("SADD", f"{below}:idx:type:{type_}", id_)
        call("SADD", f"{below}:idx:context:{context}", id_)
        call("ZADD", f"{below}:idx:priority:{priority}", now_ms, id_)
        call("ZADD", f"{below}:idx:expiry", ends_ms, id_)
        ends, born = self.model.now + life, now_ms / 1000 + self.moved_s
        self.model.items[id_] = ModelItem(id_, type_, "text", context, priority, life, ends, born=born)
        self.strangers.add(id_)
        if sweeps := self.dice.random() < 0.5:
            await self.sweep()
        return f"{id_} {type_} {context} {priority=} {life=} {sweeps=}"

    async def outsider_deletes(self) -> str:
        await self.sweep()
        alive = [item for item in map(self.model.alive, self.model.items) if item is not None]
        if not alive:
            return "nothing"
        item, below = self.dice.choice(alive), f"{self.root}:memory:short"
        call = self.conversation.call
        call("SREM", f"{below}:idx:type:{item.type}", item.id)
        call("SREM", f"{below}:idx:context:{item.context}", item.id)
        call("ZREM", f"{below}:idx:priority:{item.priority}", item.id)
        call("ZREM", f"{below}:idx:expiry", item.id)
        call("DEL", f"{below}:item:{item.id}")
        await self.m.sweep()
        self.model.vanish(item.id)
        return item.id

    # -- what time does -------------------------------------------------------------------------------------

    async def time_goes_by(self) -> str:
        ticks, sweeps = self.dice.choice([1, 2, 4, 9, 16]), self.dice.random() < 0.5
        await self.sweep_what_is_outdated()
        if self.strangers:
            # Whoever sweeps would have taken them in by then.
            await self.sweep()
        await move_time(self.k.store, self.root, ticks * TICK_S)
        self.model.now += ticks
        if sweeps:
            await self.sweep()
        return f"{ticks=} {sweeps=}"

    async def sweep(self) -> str:
        await self.compare_events()
        await self.m.sweep()
        self.model.sweep()
        self.strangers.clear()
        self.raised = False
        await self.compare_events()
        assert await self.m.sweep() == 0
        return ""

    # -- inside -----------------------------------------------------------------------------------------------

    def pick(self, *choices: Sequence[Any]) -> list[Any]:
        return [self.dice.choice(some) for some in choices]

    def one(self) -> str:
        """More often than not, one that is there, or was until now."""
        return self.dice.choice([*IDS, *self.model.items, *self.model.items])

    def one_and_version(self) -> tuple[str, int | None]:
        id_ = self.one()
        item = self.model.alive(id_)
        version = 1 if item is None else item.version
        return id_, self.dice.choice([None, None, version, version + 1])

    def new_id(self, kind: str) -> str:
        self.made += 1
        return f"{kind}{self.made}"

    def written(self, new: ModelItem, item: Item, *, replaces: bool) -> None:
        was = self.model.alive(new.id)
        assert item.version == (1 if was is None else was.version + 1)
        new.born = item.created_at + self.moved_s
        assert was is None or new.born == pytest.approx(was.born, abs=0.0005)
        self.strangers.discard(new.id)
        assert self.model.write(new, replaces=replaces)

    async def may(self, id_: str, work: Coroutine[Any, Any, Item], expected: int | None) -> bool:
        """Do it; False if that was refused, as it should be."""
        item = self.model.alive(id_)
        if item is None:
            await refused(ItemMissing, work)
            return False
        if expected not in (None, item.version):
            await self.assert_conflict(item, expected, work)
            return False
        assert (await work).id == id_
        self.strangers.discard(id_)
        return True

    async def assert_conflict(self, item: ModelItem, expected: int | None, work: Coroutine[Any, Any, Any]) -> None:
        with pytest.raises(VersionConflict) as conflict:
            await work
        assert (conflict.value.expected, conflict.value.actual) == (expected, item.version)

    async def sweep_what_is_outdated(self) -> None:
        """What is outdated and ends in another way as well may be told of in either."""
        if any(map(self.model.is_outdated, self.model.items)):
            await self.sweep()


async def refused(error: type[Exception], work: Awaitable[Any]) -> None:
    with pytest.raises(error):
        await work


def in_s(ticks: int | None) -> float | None:
    return None if ticks is None else ticks * TICK_S
