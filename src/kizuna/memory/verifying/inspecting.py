"""Asks the server what is wrong: each item and each member is looked at by a script, so in one moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from kizuna.memory import keys
from kizuna.memory.item import GLOBAL
from kizuna.memory.raw_names import raw_key, sent, shown
from kizuna.memory.scripts import script
from kizuna.memory.verifying.known_keys import WORK, KnownKey
from kizuna.memory.verifying.report import Finding, Index, Kind
from kizuna.store.scanning import raw_members
from kizuna.store.scanning.pacing import Pace

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.keys import KeyType, Roots
    from kizuna.store.scripts import Script
    from kizuna.store.wire import Argument

inspect_items = script("inspect_items")
inspect_contexts = script("inspect_contexts")
inspect_members = script("inspect_members")

ROWS = 100
"""Of one call about items: a millisecond or two, which nobody else notices."""
# Members that one call asks about: that is less work for each.
_MEMBERS = 500


class Inspector:
    """Tells what is off now. Somebody may be about to mend it, so look again before it counts."""

    def __init__(self, store: Store, roots: Roots, *, grace_s: float) -> None:
        self._store, self._roots = store, roots
        self._grace_ms = round(grace_s * 1000)
        self._pace = Pace()

    async def items(self, root: str, ids: Sequence[bytes]) -> list[Finding]:
        """Of each item: itself, and whether it stands where it should."""
        fixed = {"root": root, "expiry": keys.ITEMS_EXPIRY.build(root)}
        found = _own_faults("item", root, ids, await self.rows(inspect_items, ids, fixed))
        if self._roots.shards > 1:
            found += [*await self._astray(root, ids), *await self._in_two(root, ids)]
        return found

    async def contexts(self, root: str, ids: Sequence[bytes]) -> list[Finding]:
        fixed = {"root": root, "expiry": keys.CONTEXTS_EXPIRY.build(root)}
        return _own_faults("context", root, ids, await self.rows(inspect_contexts, ids, fixed))

    async def members(self, index: Index, ids: Sequence[bytes]) -> list[Finding]:
        """Of each member of an index: whether it should be one."""
        found = await self.rows(inspect_members, ids, self.about(index), at_once=_MEMBERS)
        return [_stray(index, id_, *fault) for id_, fault in zip(ids, found, strict=True) if fault]

    def about(self, index: Index) -> dict[str, Any]:
        """The arguments of scripts that ask whether members belong in an index."""
        return {
            "root": index.root,
            "index": sent(index.key),
            "of": index.of,
            "field": index.field,
            "name": sent(index.name),
            "grace_ms": self._grace_ms,
            "kind": index.type,
        }

    async def types(self, all_known: Sequence[KnownKey]) -> list[Finding]:
        """Of keys: whether they hold what they should."""
        types = await self._ask_all([("TYPE", sent(known.key)) for known in all_known])
        return [
            _of_key("wrong type", known, there=type_.decode(), should=known.type)
            for known, type_ in zip(all_known, types, strict=True)
            if type_.decode() not in (known.type, "none")
        ]

    def scan(self, key: str, type_: KeyType) -> AsyncIterator[list[bytes]]:
        """The members of an index, in batches; one may come twice."""
        return raw_members(self._store, sent(key), type_, pace=self._pace)

    async def work(self, known: KnownKey) -> list[Finding]:
        """What is begun and not yet done; `there` is how much of it is left."""
        batches = [names async for names in self.scan(known.key, known.type)]
        return [finding for names in batches for finding in await self._work_left(known, names)]

    async def rows(
        self, script: Script, ids: Sequence[bytes], fixed: dict[str, Any], *, at_once: int = ROWS
    ) -> list[Any]:
        """Run it for all ids, in calls that nobody else notices."""
        results: list[Any] = []
        for start in range(0, len(ids), at_once):
            rows = [{"id": id_} for id_ in ids[start : start + at_once]]
            results += await self._pace.keep(script.rows(self._store, rows, **fixed))
        return results

    async def _work_left(self, known: KnownKey, names: Sequence[bytes]) -> list[Finding]:
        family = WORK[known.family]
        count, beginning = "ZCARD" if family.type == "zset" else "SCARD", sent(known.root + family.beginning)
        left = await self._ask_all([(count, beginning + name) for name in names])
        return [
            Finding(
                kind="left over", key=known.key, id=shown(name), there=f"{number} to go", root=known.root, of="work"
            )
            for name, number in zip(names, left, strict=True)
        ]

    async def _astray(self, root: str, ids: Sequence[bytes]) -> list[Finding]:
        """In another shard than their context."""
        contexts = await self._ask_all([("HGET", _item(root, id_), "contextId") for id_ in ids])
        rights = [self._right_root(root, context) for context in contexts]
        return [
            _of_item("wrong shard", root, id_, there=root, should=right)
            for id_, right in zip(ids, rights, strict=True)
            if right != root
        ]

    def _right_root(self, root: str, context: bytes | None) -> str:
        """Its context's; the global one lies in all shards."""
        return root if context in (None, GLOBAL.encode()) else self._roots.of(shown(context or b""))

    async def _in_two(self, root: str, ids: Sequence[bytes]) -> list[Finding]:
        """Of each pair, only one tells of the other."""
        others = [other for other in self._roots.all if other > root]
        # One command for each shard tells that there is none, which is nearly always so.
        counts = await self._ask_all([("EXISTS", *(_item(other, id_) for id_ in ids)) for other in others])
        suspects = [(other, id_) for other, count in zip(others, counts, strict=True) if count for id_ in ids]
        exist = await self._ask_all([("EXISTS", _item(other, id_)) for other, id_ in suspects])
        return [
            _of_item("in two shards", root, id_, there=other)
            for (other, id_), exists in zip(suspects, exist, strict=True)
            if exists
        ]

    async def _ask_all(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        return await self._pace.keep(asyncio.gather(*(self._store.call(*command) for command in commands)))


def _own_faults(of: Literal["item", "context"], root: str, ids: Sequence[bytes], found: list[Any]) -> list[Finding]:
    return [
        Finding(
            kind=_kind(kind), key=shown(key), id=shown(id_), there=shown(there), should=shown(should), root=root, of=of
        )
        for id_, faults in zip(ids, found, strict=True)
        for kind, key, there, should in zip(*[iter(faults)] * 4, strict=True)
    ]


def _stray(index: Index, id_: bytes, kind: bytes, instead: bytes) -> Finding:
    return Finding(
        kind=_kind(kind), key=index.key, id=shown(id_), there=shown(instead), root=index.root, of=index.of, index=index
    )


def _of_item(kind: Kind, root: str, id_: bytes, *, there: str, should: str = "") -> Finding:
    key = shown(_item(root, id_))
    return Finding(kind=kind, key=key, id=shown(id_), there=there, should=should, root=root, of="item")


def _of_key(kind: Kind, known: KnownKey, *, there: str, should: str) -> Finding:
    return Finding(kind=kind, key=known.key, there=there, should=should, root=known.root, of="key")


def _item(root: str, id_: bytes) -> bytes:
    return raw_key(keys.ITEM, root, id_)


def _kind(word: bytes) -> Kind:
    return cast("Kind", word.decode())
