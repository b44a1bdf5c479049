"""What tickets say, remembered for a while: it does not change, and a ticket that finds no match is seen in every tick.

Whether a ticket is there still is never answered from here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kizuna.errors import Undecodable
from kizuna.match.tickets import Ticket

if TYPE_CHECKING:
    from kizuna.match.shard import Shard

log = logging.getLogger("kizuna.match")

_TIDIED_EVERY_S = 5.0
_IN_BETWEEN_S = 2.0


class TicketCache:
    def __init__(self, shard: Shard, keep_s: float) -> None:
        self._shard, self._keep_s = shard, keep_s
        self._known: dict[str, tuple[Ticket, float]] = {}
        self._missed: dict[str, float] = {}
        """Ids that were in the index without a ticket, and when that was first seen."""
        self._tidied_at = 0.0

    def created_at(self, id_: str) -> float | None:
        known = self._known.get(id_)
        return known[0].created_at if known else None

    async def read(self, ids: Sequence[str]) -> tuple[list[Ticket], list[str], int]:
        """The tickets, the ids of those that are gone, and how many may still come."""
        now = time.monotonic()
        self._tidy(now)
        known, tickets, unknown = self._known, list[Ticket](), list[str]()
        for id_ in ids:
            if id_ in known:
                tickets.append(known[id_][0])
            else:
                unknown.append(id_)
        if not unknown:
            return tickets, [], 0
        gone, late = [], 0
        until = now + self._keep_s
        for id_, body in zip(unknown, await self._shard.read_all(unknown), strict=True):
            if body is None and self._may_come(id_, now):
                late += 1
            elif body is None:
                gone.append(id_)
            elif (ticket := self._decode(id_, body)) is not None:
                tickets.append(ticket)
                if self._keep_s:
                    known[id_] = (ticket, until)
        return tickets, gone, late

    def _may_come(self, id_: str, now: float) -> bool:
        """Whoever enters a ticket in the index first and then writes it, as the data is specified, is in between for a
        moment: taken out of the index then, it would never be matched."""
        return now - self._missed.setdefault(id_, now) < _IN_BETWEEN_S

    def forget(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            self._known.pop(id_, None)

    def _decode(self, id_: str, body: bytes) -> Ticket | None:
        try:
            ticket = Ticket.decode(body)
        except Undecodable as error:
            log.warning("no ticket", extra={"key": self._shard.prefix + id_, "error": str(error)})
            return None
        # By the key it is found, whatever it says itself.
        ticket.id = id_
        return ticket

    def _tidy(self, now: float) -> None:
        if now - self._tidied_at > _TIDIED_EVERY_S:
            self._tidied_at = now
            self._known = {id_: entry for id_, entry in self._known.items() if entry[1] > now}
            self._missed = {id_: since for id_, since in self._missed.items() if since > now - 60}
