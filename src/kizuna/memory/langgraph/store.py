"""KizunaStore: what graphs and agents of LangGraph remember, shared by all processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from kizuna.errors import ItemMissing
from kizuna.memory.chunks import in_chunks
from kizuna.memory.langgraph.filters import passes, score_of, words_of
from kizuna.memory.langgraph.names import TYPE, context_of, item_of, key_of
from kizuna.memory.langgraph.namespaces import AT_ONCE, Namespace, Namespaces

if TYPE_CHECKING:
    from kizuna.memory.item import Item as Remembered
    from kizuna.memory.memory import Memory

T = TypeVar("T")
Found = tuple[Namespace, "Remembered"]


class KizunaStore(BaseStore):
    """A store of LangGraph on the memory of a connected system: `KizunaStore(k.memory)`, made within its loop.

    Other than a store that is told to keep everything:

    - Everything ends. `ttl` is in minutes, as in LangGraph, and the memory's policy clamps it. Without one an item
      lives as long as that policy allows (`memory.item_most_s`, a day unless set otherwise; and at most three quarters
      of `memory.context_most_s`), from when it was last written or, unless `refresh_ttl` says otherwise, read.
    - There are no vectors, so `index` says nothing, and a `query` finds the words that it consists of: those values
      in which most of them stand come first, with the share of them as the score, and those with none not at all.
    - `created_at` stays when an item is put again.
    - A search goes through namespaces in their order, and in each through items in the order of their creation.
    - Values are JSON: tuples come back as lists.

    Within one batch all reads come before all writes, and of two writes to one item the later one counts.
    The methods without `a` are for other threads than the loop's; in that one they raise asyncio.InvalidStateError.
    """

    supports_ttl = True
    __slots__ = ("_longest_s", "_loop", "_memory", "_namespaces", "ttl_config")

    def __init__(self, memory: Memory, *, ttl: TTLConfig | None = None) -> None:
        self.ttl_config = ttl
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        self._namespaces = Namespaces(memory)
        self._longest_s = min(memory.store.settings.memory.item_most_s, self._namespaces.longest_s)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        if _running_loop() is self._loop:
            raise asyncio.InvalidStateError(
                "this would wait for the loop in the loop's own thread; await the method that begins with a, "
                "such as aget, or call this one in another thread"
            )
        return asyncio.run_coroutine_threadsafe(self.abatch(ops), self._loop).result()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        asked = list(ops)
        reads = {number: self._read(op) for number, op in enumerate(asked) if not isinstance(op, PutOp)}
        # A later one to the same place takes the place of the earlier one.
        writes = {(op.namespace, op.key): op for op in asked if isinstance(op, PutOp)}
        found = dict(zip(reads, await _all(reads.values()), strict=True))
        await _all(map(self._write, writes.values()))
        return [found.get(number) for number in range(len(asked))]

    def _read(self, op: Op) -> Awaitable[Result]:
        match op:
            case GetOp():
                return self._get(op)
            case SearchOp():
                return self._search(op)
            case ListNamespacesOp():
                return self._list_namespaces(op)
        raise ValueError(f"{type(op).__name__} is no operation of a store")

    # -- one item ---------------------------------------------------------------------------------------

    async def _get(self, op: GetOp) -> Item | None:
        id_, context = item_of(op.namespace, op.key), context_of(op.namespace)
        if not op.refresh_ttl:
            item = await self._memory.get(id_, context=context)
            return None if item is None else Item(**_parts(op.namespace, item))
        try:
            item = await self._memory.touch(id_, context=context)
        except ItemMissing:
            return None
        await self._namespaces.see_to(op.namespace)
        return Item(**_parts(op.namespace, item))

    async def _write(self, op: PutOp) -> None:
        id_, context = item_of(op.namespace, op.key), context_of(op.namespace)
        if op.value is None:
            await self._memory.delete(id_, context=context)
            return
        life_s = self._longest_s if op.ttl is None else min(op.ttl * 60, self._longest_s)
        await self._namespaces.see_to(op.namespace)
        await self._memory.put(id_, TYPE, dict(op.value), context=context, ttl_s=life_s)

    # -- many of them -----------------------------------------------------------------------------------

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        words = words_of(op.query)
        found = await (self._best(op, words) if words else self._first(op))
        wanted = found[op.offset : op.offset + op.limit]
        if op.refresh_ttl and wanted:
            await self._refresh(wanted)
        return [
            SearchItem(**_parts(namespace, item), score=score_of(item.content, words) if words else None)
            for namespace, item in wanted
        ]

    async def _first(self, op: SearchOp) -> list[Found]:
        """As many as are asked for, or some more."""
        enough = op.offset + op.limit
        found: list[Found] = []
        async for some in self._matching(op, enough):
            found += some
            if len(found) >= enough:
                break
        return found

    async def _best(self, op: SearchOp, words: list[str]) -> list[Found]:
        """Those with the highest score; of equal ones, those that come first."""
        best: list[Found] = []
        async for some in self._matching(op, None):
            scored = [(score_of(item.content, words), namespace, item) for namespace, item in (*best, *some)]
            # Sorting leaves equal ones in their order.
            scored = sorted((each for each in scored if each[0]), key=lambda each: -each[0])
            best = [(namespace, item) for _, namespace, item in scored[: op.offset + op.limit]]
        return best

    async def _matching(self, op: SearchOp, enough: int | None) -> AsyncIterator[list[Found]]:
        """Namespaces are looked into some at a time, and in each for no more than `enough`."""
        async for namespaces in in_chunks(self._namespaces.below(tuple(op.namespace_prefix)), AT_ONCE):
            for found in await _all(self._matching_in(namespace, op, enough) for namespace in namespaces):
                yield found

    async def _matching_in(self, namespace: Namespace, op: SearchOp, enough: int | None) -> list[Found]:
        found: list[Found] = []
        async for item in self._memory.all(type=TYPE, context=context_of(namespace)):
            if isinstance(item.content, dict) and passes(item.content, op.filter):
                found.append((namespace, item))
            if len(found) == enough:
                break
        return found

    async def _refresh(self, found: list[Found]) -> None:
        namespaces = {namespace for namespace, _ in found}
        await _all([*map(self._namespaces.see_to, namespaces), self._memory.touch_many([item.id for _, item in found])])

    async def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        found: set[Namespace] = set()
        async for namespaces in in_chunks(self._namespaces.below(_common_prefix(conditions)), AT_ONCE):
            fitting = [each for each in namespaces if all(_matches(each, condition) for condition in conditions)]
            empty = await _all(map(self._namespaces.is_empty, fitting))
            found |= {each[: op.max_depth] for each, is_empty in zip(fitting, empty, strict=True) if not is_empty}
        return sorted(found)[op.offset : op.offset + op.limit]


def _parts(namespace: Namespace, item: Remembered) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "key": key_of(item.id),
        "value": item.content,
        "created_at": datetime.fromtimestamp(item.created_at, UTC),
        "updated_at": datetime.fromtimestamp(item.updated_at, UTC),
    }


def _common_prefix(conditions: Iterable[MatchCondition]) -> Namespace:
    """What everything begins with that fits the first condition on a beginning: the rest need not be looked at."""
    path = next((condition.path for condition in conditions if condition.match_type == "prefix"), ())
    return tuple(path[: path.index("*")] if "*" in path else path)


def _matches(namespace: Namespace, condition: MatchCondition) -> bool:
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"namespaces match by prefix or suffix, not by {condition.match_type!r}")
    length = len(condition.path)
    part = namespace[:length] if condition.match_type == "prefix" else namespace[len(namespace) - length :]
    return len(namespace) >= length and all(map(_label_fits, part, condition.path))


def _label_fits(label: str, wanted: str) -> bool:
    return wanted in ("*", label)


async def _all(awaited: Iterable[Awaitable[T]]) -> list[T]:
    """The results; if some failed, the first error, after all have ended."""
    results = await asyncio.gather(*awaited, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
