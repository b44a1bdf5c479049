"""Which tickets a tick is to take: the oldest first, and in turn where there are more than it may take.

What is picked here is a guess: whether a ticket can be taken is decided by the step that takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kizuna.match.xids import xid_at

if TYPE_CHECKING:
    from kizuna.match.shard import Shard

CreatedAt = Callable[[str], float | None]

_XID_LENGTH = 20


class Backlog:
    """`created_at` knows when tickets were made whose ids do not say it; None, if it has not seen them yet."""

    def __init__(self, shard: Shard, created_at: CreatedAt) -> None:
        self._shard, self._created_at = shard, created_at
        self._rest: list[str] = []
        self._about = 0

    @property
    def has_more(self) -> bool:
        return bool(self._rest)

    async def next(self, limit: int) -> list[str]:
        """All that wait; or, if they are more than the limit, the next of them. Only after the last one is looked who
        waits now: were it always the oldest, some that cannot be matched would keep all others from ever being seen."""
        if not self._rest:
            self._rest = await self._shard.indexed(about=self._about)
            self._about = len(self._rest)
            if self._about > limit:
                self._rest.sort(key=self._age)
        ids, self._rest = self._rest[:limit], self._rest[limit:]
        return ids

    def _age(self, id_: str) -> str:
        """Ids sort by the second they were made in; those of another kind as if they were such, and unknown ones first:
        they are known then."""
        return id_ if len(id_) == _XID_LENGTH else xid_at(self._created_at(id_) or 0)
