"""Items of one shard: each step is one row of a script, and rows that are asked for in one turn share a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from kizuna.errors import ItemExists, KizunaError, OutcomeUnknown, Refused, StoreError
from kizuna.memory.item import FIELDS, USUAL, Item, ItemChange, NewItem, Opener
from kizuna.memory.keepers import each
from kizuna.memory.keys import ITEM
from kizuna.memory.raw_names import shown
from kizuna.memory.reading import item_of, whole
from kizuna.memory.scripts import script
from kizuna.store.packing import HOLE, template
from kizuna.store.repeating import until_known

if TYPE_CHECKING:
    from kizuna.memory.doubts import Doubts
    from kizuna.memory.policy import Policy
    from kizuna.memory.shard import Shard
    from kizuna.store.client import Store
    from kizuna.store.scripts import Script
    from kizuna.store.wire import Argument

create_items = script("create_items")
write_items = script("write_items")
rewrite_items = script("rewrite_items")
change_items = script("change_items")
touch_items = script("touch_items")
remove_items = script("remove_items")
hold_item = script("hold_item")

# Of many at once, in one call.
_READ_AT_ONCE = 25
_ROWS_OF_MANY = 25

# How long an item may be on its way to another shard, should whoever takes it die; and how often others look again.
_HOLD_MS = 5_000
HELD_PAUSE_S = 0.005

_READ = template("HMGET", HOLE, *FIELDS)
_CONTENT, _METADATA = FIELDS.index("content"), FIELDS.index("metadata")

_REMOVED = [b"removed"]
_OTHER = [b"other"]
"""Of the quick ones: nothing was done, and the other script knows what to do."""

Outcome = tuple[bytes, Any]
"""How it ended, in a word; and the values of the item's fields, or its version, where that is known."""


class ShardItems:
    def __init__(self, store: Store, shard: Shard, policy: Policy, doubts: Doubts, opener: Opener | None) -> None:
        self.store, self.shard, self._doubts, self._opener = store, shard, doubts, opener
        self._item_of = (shard.root + ITEM.beginning).encode()
        # What the scripts are told once, whatever the rows are.
        bounds: dict[str, Argument] = {"bounds": policy.bounds}
        self._of_writes: dict[str, Argument] = {**shard.told, **bounds}  # type: ignore[dict-item]
        self._of_changes: dict[str, Argument] = {
            **shard.told,  # type: ignore[dict-item]
            **bounds,
            "usual_ms": policy.usual_item_ms,
        }

    async def write(self, new: NewItem, carried: bytes = b"") -> Item:
        """`carried` is version, creation and end of one that comes from another shard. ItemExists."""
        outcome = await self._doubts.until_known(
            "item", new.id, new.token, lambda tried_ms: self._try_to_write(new, carried, tried_ms)
        )
        written = self._as_written(new, outcome)
        if isinstance(written, KizunaError):
            raise written
        return written

    async def write_many(self, news: Sequence[NewItem]) -> list[Item | KizunaError]:
        """All of them new; in the place of each that could not be written, why."""
        if not all(new.is_plain and new.token not in self._doubts for new in news):
            return await each(map(self.write, news))
        began = time.monotonic()
        outcomes = await self._rows(create_items, self._of_writes, map(self._row_of, news))
        others = [at for at, outcome in enumerate(outcomes) if outcome == _OTHER or isinstance(outcome, OutcomeUnknown)]
        for at in others:
            self._doubts.add(news[at].token, time.monotonic() - began)
        for at, written in zip(others, await each(self.write(news[at]) for at in others), strict=True):
            outcomes[at] = written
        return [self._as_written(new, outcome) for new, outcome in zip(news, outcomes, strict=True)]

    async def _try_to_write(self, new: NewItem, carried: bytes, tried_ms: str) -> Any:
        row = self._row_of(new)
        if new.is_plain and not tried_ms:
            outcome = await self._row(create_items, self._of_writes, row)
            if outcome != _OTHER:
                return outcome
        fixed = {**self._of_writes, "replaces": int(new.replaces), "carried": carried}
        more = "" if new.more.is_usual else msgspec.json.encode(new.more)
        row = {**row, "more": more, "tried_ms": tried_ms}
        outcome = await self._row(write_items, fixed, row)
        while outcome == [b"held"]:
            await asyncio.sleep(HELD_PAUSE_S)
            outcome = await self._row(write_items, fixed, row)
        return outcome

    async def read(self, ids: Sequence[str]) -> list[Item | None]:
        """None in the place of each that is not there."""
        if len(ids) == 1:
            items = [item_of(await self._values_of(ids[0]), self._opener, ids[0])]
        else:
            found = await self._values(ids)
            items = [item_of(values, self._opener, id_) for id_, values in zip(ids, found, strict=True)]
        for item in items:
            if item is not None and item.more is not USUAL and item.more.generation:
                return await self._without_outdated(items)
        return items

    async def read_listed(self, ids: Sequence[bytes], now: float) -> tuple[list[Item], list[bytes]]:
        """Those that an index has, without such as have ended; and of these, the ids of those that are not there."""
        keys = [self._item_of + id_ for id_ in ids]
        found = await until_known(lambda: self._all_values(keys), deadline=self._deadline())
        items, gone = list[Item](), list[bytes]()
        for id_, values in zip(ids, found, strict=True):
            # What it calls itself may be another's: the key is what it is found by.
            named = "" if isinstance(values, Refused) or values[0] == id_ else shown(id_)
            item = None if isinstance(values, Refused) else item_of(values, self._opener, named)
            if item is None:
                gone.append(id_)
            elif item.expires_at > now:
                items.append(item)
        if any(item.more.generation for item in items):
            return [item for item in await self._without_outdated(items) if item is not None], gone
        return items, gone

    async def change(self, change: ItemChange) -> Outcome:
        """changed, missing, conflict, sealed or held."""
        returned = await self._doubts.until_known(
            "item", change.id, change.token, lambda tried_ms: self._try_to_change(change, tried_ms)
        )
        outcome, detail = _outcome(returned)
        if outcome == b"changed":
            detail[_CONTENT] = change.content or detail[_CONTENT]
            detail[_METADATA] = change.metadata or detail[_METADATA]
        return outcome, detail

    async def _try_to_change(self, change: ItemChange, tried_ms: str) -> Any:
        row: dict[str, Argument] = {
            "item": self.shard.item(change.id),
            "id": change.id,
            "expected": "" if change.expected_version is None else change.expected_version,
            "content": change.content or b"",
            "metadata": change.metadata or b"",
            "token": change.token,
        }
        if change.is_plain and not tried_ms:
            outcome = await self._row(rewrite_items, self._of_writes, row)
            if outcome != _OTHER:
                return outcome
        row |= {
            "type_": change.type or "",
            "context": change.to_context or "",
            "priority": change.priority or "",
            "ttl_ms": change.ttl_ms or "",
            "unseals": int(change.unseals),
            "tried_ms": tried_ms,
        }
        return await self._row(change_items, self._of_changes, row)

    async def touch(self, id_: str, ttl_ms: int | None) -> Outcome:
        """touched or missing."""
        row: dict[str, Argument] = {"item": self.shard.item(id_), "id": id_, "ttl_ms": ttl_ms or ""}
        return _outcome(await until_known(lambda: self._row(touch_items, self._of_changes, row)))

    async def remove_many(self, ids: Sequence[str]) -> list[bool | KizunaError]:
        """Whether each was there; in the place of one that could not be removed, why."""
        fixed: dict[str, Argument] = {**self.shard.told, "reason": "deleted"}  # type: ignore[dict-item]
        rows: Iterator[dict[str, Argument]] = ({"item": self.shard.item(id_), "id": id_, "expected": ""} for id_ in ids)
        outcomes = await self._rows(remove_items, fixed, rows)
        unknown = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, OutcomeUnknown)]
        for at, removed in zip(unknown, await each(self._remove_again(ids[at]) for at in unknown), strict=True):
            outcomes[at] = removed
        return [outcome if isinstance(outcome, KizunaError) else outcome[0] == b"removed" for outcome in outcomes]

    async def _remove_again(self, id_: str) -> list[Any]:
        await self.remove(id_, None, "deleted")
        # What is missing the second time was removed by the first, as far as anybody can tell.
        return _REMOVED

    async def remove(self, id_: str, expected: int | None, reason: str) -> Outcome:
        """removed, missing or conflict."""
        fixed: dict[str, Argument] = {**self.shard.told, "reason": reason}  # type: ignore[dict-item]
        row: dict[str, Argument] = {
            "item": self.shard.item(id_),
            "id": id_,
            "expected": "" if expected is None else expected,
        }

        async def again() -> list[Any]:
            outcome: list[Any] = await self._row(remove_items, fixed, row)
            # By the first, as far as anybody can tell.
            return _REMOVED if outcome == [b"missing"] else outcome

        return _outcome(await until_known(lambda: self._row(remove_items, fixed, row), again))

    async def hold(self, id_: str, version: int) -> bytes:
        """Nobody else changes it for a moment: held, missing, other or busy."""
        return await self._hold(id_, version, _HOLD_MS)

    async def let_go(self, id_: str) -> None:
        await self._hold(id_, 0, 0)

    async def _hold(self, id_: str, version: int, hold_ms: int) -> bytes:
        item = self.shard.item(id_)
        outcome: bytes = await until_known(lambda: hold_item(self.store, item=item, expected=version, hold_ms=hold_ms))
        return outcome

    def item_of(self, values: Sequence[bytes | None], id_: str = "") -> Item | None:
        return item_of(values, self._opener, id_)

    # -- inside -------------------------------------------------------------------------------------------

    def _row(self, script: Script, fixed: dict[str, Argument], row: dict[str, Argument]) -> asyncio.Future[Any]:
        # Not through `Script.row`, which checks names and types of each: these are always the same.
        return self.store.batch_row(script, fixed, row)

    async def _rows(self, script: Script, fixed: dict[str, Argument], rows: Iterator[dict[str, Argument]]) -> list[Any]:
        """For many at once: without a future for each. Of a call that failed, its error in the place of each row."""
        calls = []
        while some := list(islice(rows, _ROWS_OF_MANY)):
            # In the line from here on: while the server works on these, we make the next.
            calls.append((len(some), script.begin_rows(self.store, some, fixed)))
        outcomes = await asyncio.gather(*(_outcomes(call, count) for count, call in calls))
        return [outcome for some in outcomes for outcome in some]

    def _row_of(self, new: NewItem) -> dict[str, Argument]:
        return {
            "item": self.shard.item(new.id),
            "id": new.id,
            "type_": new.type,
            "content": new.content,
            "context": new.context,
            "priority": new.priority,
            "metadata": new.metadata,
            "kind": new.more.kind,
            "ttl_ms": new.ttl_ms,
            "token": new.token,
        }

    # A read can be repeated without harm.

    async def _values_of(self, id_: str) -> list[Any]:
        key, deadline = self.shard.item(id_), self._deadline()
        try:
            # The way of almost every read: without what it takes to repeat it.
            values: list[Any] = await self.store.call("HMGET", key, *FIELDS)
        except OutcomeUnknown:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            values = await until_known(lambda: self.store.call("HMGET", key, *FIELDS), deadline=deadline)
        return values

    async def _values(self, ids: Sequence[str]) -> list[Any]:
        keys = [self.shard.item(id_).encode() for id_ in ids]
        replies = await until_known(lambda: self._all_values(keys), deadline=self._deadline())
        for reply in replies:
            if isinstance(reply, Refused):
                raise reply
        return replies

    async def _all_values(self, keys: Sequence[bytes]) -> list[Any]:
        """In the place of each that the server refused, why."""
        # All are sent before the first is waited for: while we read these, the server works on the next.
        calls = [self._read(keys[start : start + _READ_AT_ONCE]) for start in range(0, len(keys), _READ_AT_ONCE)]
        replies = [reply for call in calls for reply in await call]
        for reply in replies:
            if isinstance(reply, StoreError) and not isinstance(reply, Refused):
                raise reply
        return replies

    def _read(self, keys: Sequence[bytes]) -> asyncio.Future[list[Any]]:
        commands = [("HMGET", key, *FIELDS) for key in keys]
        return self.store.call_all(commands, packed=b"".join([_READ % (len(key), key) for key in keys]))

    def _deadline(self) -> float:
        return self.store.deadline(None)

    async def _without_outdated(self, items: Sequence[Item | None]) -> list[Item | None]:
        names = sorted({item.more.generation for item in items if item is not None and item.more.generation})
        numbers = await self.store.call("HMGET", self.shard.generations, *names)
        raised = {name: whole(number or b"0") for name, number in zip(names, numbers, strict=True)}
        return [None if item is None or _is_outdated(item, raised) else item for item in items]

    def _as_written(self, new: NewItem, outcome: Any) -> Item | KizunaError:
        if isinstance(outcome, Item | KizunaError):
            return outcome
        if outcome[0] == b"exists":
            return ItemExists(new.id)
        version, created_ms, expires_ms, life_ms, number = map(int, outcome[1:])
        more = new.more
        return Item(
            id=new.id,
            type=new.type,
            context=new.context,
            priority=new.priority,
            raw_content=new.content,
            raw_metadata=new.metadata,
            version=version,
            created_at=created_ms / 1000,
            updated_at=(expires_ms - life_ms) / 1000,
            expires_at=expires_ms / 1000,
            ttl_s=life_ms / 1000,
            more=more if more.is_usual else msgspec.structs.replace(more, generation_number=number),
            opener=self._opener,
        )


async def _outcomes(call: Awaitable[list[Any]], count: int) -> list[Any]:
    try:
        return await call
    except StoreError as error:
        return [error] * count


def _is_outdated(item: Item, raised: dict[str, int]) -> bool:
    generation = item.more.generation
    return generation is not None and item.more.generation_number < raised[generation]


def _outcome(returned: list[Any]) -> Outcome:
    return returned[0], returned[1] if len(returned) > 1 else None
