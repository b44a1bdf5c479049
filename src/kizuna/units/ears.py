"""Hearing for all units of a process.

    few of them     each subscribes to what it wants to hear, and to nothing else
    many            those that come later share one subscription to everything of its kind

The server compares each change of a key with every pattern that somebody subscribed to: a thousand units, each with its
own, would slow it down for all. One pattern for all costs it nothing, and us a look at each path that is not ours.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from kizuna.errors import PermissionDenied
from kizuna.units.hearing import Hearing

if TYPE_CHECKING:
    from kizuna.errors import KizunaError
    from kizuna.store.client import Store
    from kizuna.units.hearing import Silence

ON_THEIR_OWN = 16
"""So many units of a process have a pattern of their own, of each kind."""

Kind = Literal["req", "res", "err"]


class Ears:
    def __init__(self, store: Store, silence: Silence, root: str) -> None:
        self.store, self.silence = store, silence
        self._crowds = {
            "req": Crowd(self, f"{root}/*/req/*", _addressee),
            "res": Crowd(self, f"{root}/*/res/*", _owner),
            "err": Crowd(self, f"{root}/*/err/*", _owner),
        }

    def ear(
        self,
        kind: Kind,
        name: str,
        pattern: str,
        on_set: Callable[[list[bytes]], None],
        on_look: Callable[[], None],
    ) -> Ear:
        """For the requests to the unit of this name, or for the replies or errors to it; `pattern` fits just these."""
        return Ear(self._crowds[kind], name.encode(), pattern, on_set, on_look)

    def is_crowded(self, kind: Kind) -> bool:
        """The next one would have to share."""
        return self._crowds[kind].is_full


class Crowd:
    """Those that hear of one kind of key. `name_in` tells whom a key concerns."""

    def __init__(self, ears: Ears, pattern: str, name_in: Callable[[bytes], bytes]) -> None:
        self.ears = ears
        self.on_their_own = 0
        self._name_in = name_in
        self._members: dict[bytes, list[Ear]] = defaultdict(list)
        self._hearing = Hearing(ears.store, ears.silence, pattern, self._heard, self._look)
        self._coming_and_going = asyncio.Lock()

    @property
    def polling(self) -> KizunaError | None:
        return self._hearing.polling

    @property
    def is_full(self) -> bool:
        """No more have a pattern of their own."""
        return self.on_their_own >= ON_THEIR_OWN

    async def take(self, ear: Ear) -> bool:
        """False if it is to hear on its own: there are few, or we may not subscribe to everything."""
        if self.is_full:
            async with self._coming_and_going:
                await self._hearing.open()
                if not isinstance(self._hearing.polling, PermissionDenied):
                    self._members[ear.name].append(ear)
                    return True
                await self._leave_if_empty()
        self.on_their_own += 1
        return False

    async def drop(self, ear: Ear) -> None:
        async with self._coming_and_going:
            self._members[ear.name].remove(ear)
            if not self._members[ear.name]:
                del self._members[ear.name]
            await self._leave_if_empty()

    async def _leave_if_empty(self) -> None:
        if not self._members:
            await self._hearing.aclose()

    def _heard(self, keys: list[bytes]) -> None:
        concerned: dict[bytes, list[bytes]] = defaultdict(list)
        for key in keys:
            name = self._name_in(key)
            if name in self._members:
                concerned[name].append(key)
        for name, its_keys in concerned.items():
            for ear in self._members[name]:
                ear.on_set(its_keys)

    def _look(self) -> None:
        for ears in list(self._members.values()):
            for ear in ears:
                ear.on_look()


class Ear:
    """Like `Hearing`, on its own or in the crowd, as it turns out when it is opened."""

    def __init__(
        self,
        crowd: Crowd,
        name: bytes,
        pattern: str,
        on_set: Callable[[list[bytes]], None],
        on_look: Callable[[], None],
    ) -> None:
        self.name, self.pattern, self.on_set, self.on_look = name, pattern, on_set, on_look
        self._crowd = crowd
        self._opening = asyncio.Lock()
        self._heard_by: Crowd | Hearing | None = None

    @property
    def polling(self) -> KizunaError | None:
        """Why it has to look; None while it hears."""
        return None if self._heard_by is None else self._heard_by.polling

    async def open(self) -> None:
        """Return when every change from now on is heard, or found by looking. Harmless when repeated."""
        async with self._opening:
            if self._heard_by is None:
                self._heard_by = self._crowd if await self._crowd.take(self) else await self._on_its_own()

    async def aclose(self) -> None:
        async with self._opening:
            heard_by, self._heard_by = self._heard_by, None
            if isinstance(heard_by, Crowd):
                await heard_by.drop(self)
            elif heard_by is not None:
                self._crowd.on_their_own -= 1
                await heard_by.aclose()

    async def _on_its_own(self) -> Hearing:
        ears = self._crowd.ears
        hearing = Hearing(ears.store, ears.silence, self.pattern, self.on_set, self.on_look)
        try:
            await hearing.open()
        except BaseException:
            self._crowd.on_their_own -= 1
            await hearing.aclose()
            raise
        return hearing


def _addressee(key: bytes) -> bytes:
    return key.rpartition(b"/")[2].partition(b".")[0]


def _owner(key: bytes) -> bytes:
    return key.rsplit(b"/", 3)[-3]
