"""The state that a unit shares: values by id, each with an end.

    await unit.keep.set("temp", b"21.5", ttl_s=60)           muf/sensor/keep/temp
    await unit.keep_of("sensor").get("temp")                 by anybody
    async for change in unit.keep_of("sensor").watch():      what is there, and then each change
        print(change.id, change.kind, change.value)

A value is the value and nothing else, so that `redis-cli SET muf/sensor/keep/temp 21.5 EX 60` is as good. Ids are in
lower case, whoever writes them.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import random
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from kizuna.errors import OutcomeUnknown, ValueChanged
from kizuna.store.lifetimes import lifetime_ms
from kizuna.store.repeating import until_known
from kizuna.store.scripts import Script
from kizuna.units.keys import KEEP
from kizuna.units.paths import lowered
from kizuna.units.reading import read_values
from kizuna.units.state.hearing import StateHearing
from kizuna.units.state.selection import Selection
from kizuna.units.state.watching import Changes, Watch
from kizuna.units.values import checked_size

if TYPE_CHECKING:
    from kizuna.codecs import Codec
    from kizuna.store.client import Store

UPDATE_ATTEMPTS = 64
_LONGEST_PAUSE_S = 0.05

_replace_kept = Script.load(__package__, "replace_kept")


class Keep:
    """`unit.keep`, and `unit.keep_of(name)` of any other unit. Nothing is deleted; everything ends.

    A value of another format is Undecodable where it is read. A key that is no string holds no value: it reads as if it
    were not there.
    """

    def __init__(self, store: Store, unit: str, ttl_s: float, codec: Codec, largest_bytes: int, root: str) -> None:
        self.unit = lowered(unit)
        self.ttl_s = ttl_s
        """How long a value is kept that is set without another time."""
        self._store, self._codec, self._largest_bytes, self._root = store, codec, largest_bytes, lowered(root)

    def with_codec(self, codec: Codec) -> Keep:
        """The same values in another format."""
        return Keep(self._store, self.unit, self.ttl_s, codec, self._largest_bytes, self._root)

    async def set(self, id: str, value: Any, *, ttl_s: float | None = None) -> None:  # noqa: A002 - what it is called
        """Keep it from now on, in place of what was there. Repeating it after OutcomeUnknown is harmless."""
        key = self._key(id)
        await self._store.call("SET", key, self._encoded(key, value), "PX", self._ms(ttl_s))

    async def get(self, id: str, default: Any = None) -> Any:  # noqa: A002
        """The value; or `default` if there is none, or none any more."""
        raw = await self._read(self._key(id))
        return default if raw is None else self._codec.decode(raw)

    async def get_many(self, ids: Iterable[str]) -> dict[str, Any]:
        """The values there are, by their ids in lower case."""
        keys = {lowered(id_): self._key(id_).encode() for id_ in ids}
        values = await read_values(self._store, list(keys.values()))
        return {id_: self._codec.decode(raw) for id_, raw in zip(keys, values, strict=True) if raw is not None}

    async def touch(self, id: str, ttl_s: float | None = None) -> bool:  # noqa: A002
        """Keep it as long again, from now on. Whether it was still there."""
        return bool(await self._store.call("PEXPIRE", self._key(id), self._ms(ttl_s)))

    async def ends_in_s(self, id: str) -> float | None:  # noqa: A002
        """How long it is still kept; None if it is not there, infinite if somebody else has set it without an end."""
        ms = int(await self._store.call("PTTL", self._key(id)))
        return None if ms == -2 else math.inf if ms == -1 else ms / 1000

    async def replace(self, id: str, value: Any, *, expected: Any, ttl_s: float | None = None) -> None:  # noqa: A002
        """Set it if it is `expected`, byte for byte as we would write that; None: if there is none. Else ValueChanged,
        and nothing is written. Of several who expect the same, one succeeds.

        If the answer gets lost, it is asked for again; it counts as done, then, if the value is the new one. So who has
        to know that nobody else did the same puts something of its own into the value. OutcomeUnknown if that remains
        so, or if the value is another one by then: it may have been ours in between.
        """
        key = self._key(id)
        raw = None if expected is None else self._codec.encode(expected)
        await self._replace(key, raw, self._encoded(key, value), self._ms(ttl_s))

    async def update(
        self,
        id: str,  # noqa: A002
        function: Callable[[Any], Any],
        *,
        ttl_s: float | None = None,
        attempts: int = UPDATE_ATTEMPTS,
    ) -> Any:
        """Make a new value of the one there is, None if there is none, and return it. `function`, plain or async, is
        called again with what is there then, if somebody else was quicker; ValueChanged if that goes on. `replace` says
        what a lost answer means."""
        key, ms = self._key(id), self._ms(ttl_s)
        for attempt in count(1):
            raw = await self._read(key)
            value = function(None if raw is None else self._codec.decode(raw))
            value = await value if inspect.isawaitable(value) else value
            try:
                await self._replace(key, raw, self._encoded(key, value), ms)
            except ValueChanged:
                if attempt >= attempts:
                    raise
            else:
                break
            # By chance, so that those who met do not meet again.
            await asyncio.sleep(random.random() * min(0.001 * 2**attempt, _LONGEST_PAUSE_S))  # noqa: S311
        return value

    def watch(self, pattern: str = "*", *, changes_only: bool = False, internals: bool = False) -> Watch:
        """What is there now, and then each change of a value whose id fits the pattern, a glob.

        `async for change in keep.watch():`, or `async with keep.watch() as changes:`, entered when nothing that is
        written from then on is missed. Several changes in quick succession may be told as the last one. Without
        notifications it looks every `units.poll_every_s`, and tries to hear now and then.
        """
        selection = Selection(self._root, self.unit, pattern, internals=internals)

        def make() -> Changes:
            hearing = StateHearing(self._store, selection)
            return Changes(self._store, selection, self._codec, hearing, changes_only=changes_only)

        return Watch(make)

    async def ids(self, pattern: str = "*", *, internals: bool = False) -> AsyncIterator[str]:
        """Those that there are and that fit the pattern, a glob, in no order, each once."""
        selection = Selection(self._root, self.unit, pattern, internals=internals)
        seen: set[bytes] = set()
        async for key in selection.keys(self._store):
            id_ = selection.id_of(key)
            if id_ is not None and key not in seen:
                seen.add(key)
                yield id_

    # -- inside -----------------------------------------------------------------------------------------

    def _key(self, id_: str) -> str:
        return KEEP.build(self._root, unit=self.unit, id=lowered(id_))

    def _ms(self, ttl_s: float | None) -> int:
        return lifetime_ms(self.ttl_s if ttl_s is None else ttl_s)

    def _encoded(self, key: str, value: Any) -> bytes:
        return checked_size(self._codec.encode(value), self._largest_bytes, key)

    async def _read(self, key: str) -> bytes | None:
        (raw,) = await read_values(self._store, [key.encode()])
        return raw

    async def _replace(self, key: str, expected: bytes | None, to: bytes, ttl_ms: int) -> None:
        expects = "nothing" if expected is None else "bytes"
        step = partial(
            _replace_kept,
            self._store,
            kept=key,
            expects=expects,
            expected=expected or b"",
            to=to,
            ttl_ms=ttl_ms,
        )
        outcome, *found = await until_known(partial(step, attempt="first"), partial(step, attempt="again"))
        if outcome == b"unexpected":
            raise ValueChanged(key, None if found[0] is None else found[0].decode(errors="replace"))
        if outcome == b"no value":
            raise ValueChanged(key, f"a {found[0].decode()}")
        if outcome == b"unknown":
            server = self._store.topology.route(("GET", key)).describe()
            hint = "it may have been written, and changed by somebody else since; look, and decide again"
            raise OutcomeUnknown(f"the answer got lost when {key} was replaced", server, hint)
