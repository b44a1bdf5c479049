"""What memory promises, as a few dicts: items and contexts, what is done to them, and what is told about it.

Time goes in whole ticks; what happens within one takes no time here, and far less than one on the server. What has come
to its end is not shown any more, and is told of when somebody notices: `notice` and `sweep` say what follows from that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

GLOBAL = "global"


class Told(NamedTuple):
    kind: str
    id: str
    reason: str


@dataclass
class ModelItem:
    id: str
    type: str
    content: Any
    context: str
    priority: int
    life: int
    ends: int
    depends_on: tuple[str, ...] = ()
    generation: str | None = None
    number: int = 0
    version: int = 1
    born: float = 0.0
    """By the server, as if time had not been moved."""


@dataclass
class ModelContext:
    id: str
    type: str
    life: int
    ends: int
    at_end: str
    active: bool
    version: int = 1


@dataclass
class Model:
    least: int
    usual: int
    most: int
    stretch: int
    """How many more usual lives an item of the highest priority has."""
    now: int = 0
    items: dict[str, ModelItem] = field(default_factory=dict)
    contexts: dict[str, ModelContext] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    maybe: list[Told] = field(default_factory=list)
    """What may be told or not: a life that is given again within one tick is longer by a moment, or by none."""

    # -- what is there ------------------------------------------------------------------------------------

    def is_due(self, id_: str) -> bool:
        return id_ in self.items and self.items[id_].ends <= self.now

    def is_outdated(self, id_: str) -> bool:
        item = self.items.get(id_)
        return (
            item is not None and item.generation is not None and item.number < self.generations.get(item.generation, 0)
        )

    def alive(self, id_: str) -> ModelItem | None:
        return None if self.is_due(id_) or self.is_outdated(id_) else self.items.get(id_)

    def context(self, id_: str) -> ModelContext | None:
        context = self.contexts.get(id_)
        return context if context is not None and context.ends > self.now else None

    def unnoticed(self) -> set[str]:
        """The ids of items and contexts that have ended, and of which nobody has told yet."""
        ended = {id_ for id_ in self.items if self.alive(id_) is None}
        return ended | {id_ for id_ in self.contexts if self.context(id_) is None}

    def listed(
        self,
        type: str | None = None,  # noqa: A002 - as everywhere
        context: str | None = None,
        priority: tuple[int, int] | None = None,
        text: str = "",
    ) -> list[str]:
        low, high = priority or (1, 10)
        found = [
            item
            for item in map(self.alive, self.items)
            if item is not None
            and type in (None, item.type)
            and context in (None, item.context)
            and low <= item.priority <= high
            and text in str(item.content)
        ]
        return [item.id for item in sorted(found, key=lambda item: (item.born, item.id))]

    # -- what is done to items ----------------------------------------------------------------------------

    def life(self, priority: int, ttl: int | None) -> int:
        wanted = self.usual * (5 + self.stretch * max(0, priority - 5)) // 5 if ttl is None else ttl
        return self.clamped(wanted)

    def clamped(self, life: int) -> int:
        return min(max(life, self.least), self.most)

    def write(self, new: ModelItem, *, replaces: bool) -> bool:
        """False if there is one that may not be replaced. Its life counts from now."""
        changed = self._put_away(new.id)
        was = self.items.get(new.id)
        if was is not None and not replaces:
            return False
        number = self.generations.get(new.generation or "", 0)
        self.items[new.id] = replace(new, ends=self.now + new.life, number=number)
        if was is not None:
            self.items[new.id].version, self.items[new.id].born = was.version + 1, was.born
            changed.append(new.id)
        self._use(new.context)
        self._tell("item:updated" if was else "item:created", new.id, "replaced" if was else "")
        self._end_dependents(changed)
        return True

    def change(self, id_: str, *, ttl: int | None = None, **fields: Any) -> None:
        item = self.items[id_]
        moved = fields.get("context", item.context) != item.context
        for name, value in fields.items():
            setattr(item, name, value)
        item.version += 1
        if ttl is not None:
            item.life = self.clamped(ttl)
            item.ends = self.now + item.life
        self._use(item.context)
        self._tell("item:updated", id_, "moved" if moved else "")
        self._end_dependents([id_])

    def touch(self, id_: str, ttl: int | None) -> None:
        item = self.items[id_]
        ends = self.now + self.clamped(item.life if ttl is None else ttl)
        if ends > item.ends:
            item.ends = ends
            self._tell("item:updated", id_, "touched")
        elif ends == item.ends:
            self.maybe.append(Told("item:updated", id_, "touched"))
        self._use(item.context)

    def delete(self, id_: str) -> None:
        self._end(id_, "item:deleted", "deleted")
        self._end_dependents([id_])

    def vanish(self, id_: str) -> None:
        """An outsider took it away, and has told of that or not."""
        del self.items[id_]
        self._end_dependents([id_])

    def changed(self, name: str) -> int:
        before = len(self.told)
        self._end_dependents([name])
        return sum(told.reason == "changed" for told in self.told[before:])

    def raise_generation(self, name: str) -> int:
        self.generations[name] = self.generations.get(name, 0) + 1
        return self.generations[name]

    # -- what is done to contexts -------------------------------------------------------------------------

    def write_context(self, new: ModelContext) -> None:
        self.contexts[new.id] = replace(new, ends=self.now + new.life)
        self._tell("ctx:created", new.id, "")

    def change_context(self, id_: str, *, ttl: int | None = None, **fields: Any) -> None:
        context = self.contexts[id_]
        for name, value in fields.items():
            setattr(context, name, value)
        context.version += 1
        if ttl is not None:
            context.life, context.ends = ttl, self.now + ttl
        if fields.get("active"):
            context.ends = max(context.ends, self.now + context.life)
        self._tell("ctx:updated", id_, "")

    def touch_context(self, id_: str) -> None:
        context = self.contexts[id_]
        context.ends = max(context.ends, self.now + context.life)
        self._tell("ctx:updated", id_, "touched")

    def delete_context(self, id_: str, at_end: str | None) -> None:
        self._tell("ctx:deleted", id_, "")
        self._end_dependents(self._end_context(id_, at_end, "item:deleted"))

    # -- what time does -----------------------------------------------------------------------------------

    def notice(self, told: Told) -> bool:
        """Whether this could be told because somebody came across something that had ended; then it has been."""
        if self._end_of(told.id) == told:
            self._end_dependents(self._put_away(told.id))
        elif told == Told("ctx:expired", told.id, "time") and told.id in self.contexts and not self.context(told.id):
            self._tell("ctx:expired", told.id, "time")
            self._end_dependents(self._end_context(told.id, None, "item:expired"))
        else:
            return False
        return True

    def sweep(self) -> None:
        """Everything that has ended is put away and told of."""
        changed = [id_ for due in list(self.items) if self.is_due(due) for id_ in self._put_away(due)]
        for id_ in [id_ for id_ in self.contexts if not self.context(id_)]:
            self._tell("ctx:expired", id_, "time")
            changed += self._end_context(id_, None, "item:expired")
        changed += [id_ for outdated in list(self.items) for id_ in self._put_away(outdated)]
        self._end_dependents(changed)

    # -- inside -------------------------------------------------------------------------------------------

    def _tell(self, kind: str, id_: str, reason: str) -> None:
        self.told.append(Told(kind, id_, reason))

    def _end(self, id_: str, kind: str, reason: str) -> None:
        """Whatever else would end it now: one whose time was over has expired."""
        if self.is_due(id_):
            kind, reason = "item:expired", "time"
        del self.items[id_]
        self._tell(kind, id_, reason)

    def _end_of(self, id_: str) -> Told | None:
        """What is to be told about an item that has ended and was not noticed yet."""
        if self.is_due(id_):
            return Told("item:expired", id_, "time")
        return Told("item:deleted", id_, "generation") if self.is_outdated(id_) else None

    def _put_away(self, id_: str) -> list[str]:
        """What has thereby changed: its id, if it had ended before."""
        if self.alive(id_) is not None or id_ not in self.items:
            return []
        self._end(id_, "item:deleted", "generation")
        return [id_]

    def _end_dependents(self, names: Iterable[str]) -> None:
        changed = list(names)
        while changed:
            name = changed.pop()
            for id_ in [item.id for item in self.items.values() if name in item.depends_on]:
                if id_ in self.items:
                    self._end(id_, "item:deleted", "changed")
                    changed.append(id_)

    def _end_context(self, id_: str, at_end: str | None, kind: str) -> list[str]:
        """Its items end with it, or are left to the global one. Returns those, for that is a change either way."""
        context = self.contexts.pop(id_)
        items = [item.id for item in self.items.values() if item.context == id_]
        for item in items:
            if self.is_due(item) or (at_end or context.at_end) == "delete":
                self._end(item, kind, "context")
            else:
                self.items[item].context = GLOBAL
                self.items[item].version += 1
                self._tell("item:updated", item, "context")
        return items

    def _use(self, id_: str) -> None:
        context = self.context(id_)
        # By a tenth of its life more or less nobody is told.
        if context is not None and context.active and (self.now + context.life - context.ends) * 10 > context.life:
            context.ends = self.now + context.life
            self._tell("ctx:updated", id_, "used")
