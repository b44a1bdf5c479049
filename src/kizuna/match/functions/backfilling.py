"""Free places in running matches are filled before new matches are made.

A backfill says how many are free by the number `open_slots` among its search fields, or else by an extension of that
name. The match that joins it writes there what is left, and the backfill is of the next generation then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kizuna.match import values
from kizuna.match.backfills import Backfill
from kizuna.match.functions.balance import players_of
from kizuna.match.functions.combining import without
from kizuna.match.functions.options import Arg, Distance, Inner, PureFunction, function_of, with_options
from kizuna.match.functions.widening import Widening
from kizuna.match.matches import Match, Waiting
from kizuna.match.openmatch import messages_pb2
from kizuna.match.tickets import Ticket

JOINING = 2.0
"""The score of a match that joins one: above those of new matches, which ready functions give 0 to 1."""


@with_options
def backfill_first(
    function: Inner = "one_against_one",
    *,
    open_slots: Arg = "open_slots",
    party: Arg = "party_size",
    skill: str = "",
    window: Distance = 100.0,
    widens_by_s: Distance = 10.0,
    widest: Distance = 1000.0,
) -> PureFunction:
    """Fills the oldest backfill first, each with the oldest tickets of its pool that fit in; of what is left, the other
    function makes new matches. With `skill`, only those join who are within the window of the backfill's own, which
    widens with their waiting."""
    inner = function_of(function)
    rules = _Rules(open_slots, party, skill, Widening(window, widens_by_s, max(window, widest)))

    def fill_and_match(waiting: Waiting) -> list[Match]:
        joining = rules.join(waiting)
        return [*joining, *inner(without(waiting, joining))]

    return fill_and_match


@dataclass(frozen=True)
class _Rules:
    open_slots: str
    party: str
    skill: str
    window: Widening

    def join(self, waiting: Waiting) -> list[Match]:
        matches: list[Match] = []
        taken: set[str] = set()
        for pool, backfills in waiting.backfills.items():
            free = [ticket for ticket in waiting.pools.get(pool, ()) if ticket.id not in taken]
            # One of several pools is filled from one of them: by then it is another generation.
            for backfill in (one for one in backfills if one.id not in taken):
                if match := self._filled(backfill, free, waiting.now_s):
                    matches.append(match)
                    taken.update(match.ticket_ids, [backfill.id])
                    free = [ticket for ticket in free if ticket.id not in taken]
        return matches

    def _filled(self, backfill: Backfill, free: list[Ticket], now_s: float) -> Match | None:
        places = self._free_places(backfill)
        joining: list[Ticket] = []
        for ticket in free:
            if not places:
                break
            players = players_of(ticket, self.party)
            if 1 <= players <= places and self._suits(ticket, backfill, now_s):
                joining.append(ticket)
                places -= players
        return Match(joining, backfill=self._left(backfill, places), allocate=False, score=JOINING) if joining else None

    def _free_places(self, backfill: Backfill) -> int:
        """0 if it says nothing that one could count on."""
        said = backfill.doubles.get(self.open_slots, backfill.extensions.get(self.open_slots, 0))
        is_number = isinstance(said, int | float) and math.isfinite(said)
        return max(0, math.floor(said)) if is_number else 0  # type: ignore[arg-type]

    def _suits(self, ticket: Ticket, backfill: Backfill, now_s: float) -> bool:
        wanted = backfill.doubles.get(self.skill)
        if not self.skill or wanted is None:
            return True
        apart = abs(ticket.doubles.get(self.skill, math.nan) - wanted)
        return apart <= self.window.after(ticket.waited_s(now_s))

    def _left(self, backfill: Backfill, places: int) -> Backfill:
        """The same backfill and generation, with what is still free."""
        message = messages_pb2.Backfill()
        message.CopyFrom(backfill.message)
        if self.open_slots in backfill.doubles:
            message.search_fields.double_args[self.open_slots] = places
        else:
            values.pack_into(message.extensions, {self.open_slots: places})
        return Backfill(message)
