"""What match functions make of tickets, and what becomes of it. Does no I/O.

waiting ──function──> matches ──evaluator──> those that stand ──assigner──> groups
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from kizuna.match import values
from kizuna.match.backfills import Backfill
from kizuna.match.openmatch import extensions_pb2, messages_pb2
from kizuna.match.pools import BY_AGE
from kizuna.match.tickets import Assignment, Ticket
from kizuna.match.xids import make_xid

if TYPE_CHECKING:
    from kizuna.match.pools import Profile
    from kizuna.match.values import Value

EVALUATION_INPUT = "evaluation_input"
"""The extension of a match that the default evaluator of Open Match looks at."""


@dataclass(frozen=True)
class Waiting:
    """What a match function decides about: the tickets of each pool of its profile, the oldest first."""

    profile: Profile
    pools: Mapping[str, Sequence[Ticket]]
    now_s: float
    """The server's time, in seconds since the epoch: how long a ticket has waited is up to here."""
    backfills: Mapping[str, Sequence[Backfill]] = field(default_factory=dict)
    """Free places in running matches, by pool, the oldest first."""

    @property
    def tickets(self) -> list[Ticket]:
        """Of all pools, each once, the oldest first."""
        distinct = {ticket.id: ticket for tickets in self.pools.values() for ticket in tickets}
        return sorted(distinct.values(), key=BY_AGE)


@dataclass(eq=False, slots=True)
class Match:
    """Tickets that are to play together. With a higher `score` it is preferred to others that want the same tickets."""

    tickets: Sequence[Ticket]
    id: str = field(default_factory=make_xid)
    profile: str = ""
    """Filled in, as is `function`, unless the function says otherwise."""
    function: str = ""
    score: float | None = None
    extensions: Mapping[str, Value] = field(default_factory=dict)
    backfill: Backfill | None = None
    """A running match that the tickets join, or, without an id, one that is to be opened for more players."""
    allocate: bool = True
    """Whether a game server has to be found; not so where the tickets join one."""
    made_by: Any = field(default=None, repr=False)
    """What a backend remembers about it."""
    assignment: Assignment | None = field(default=None, init=False, repr=False)
    """What its tickets got, once a backend has assigned them; of several, that of its first ticket."""
    _ticket_ids: list[str] | None = field(default=None, init=False, repr=False)

    @property
    def ticket_ids(self) -> list[str]:
        if self._ticket_ids is None:
            self._ticket_ids = [ticket.id for ticket in self.tickets]
        return self._ticket_ids

    def assigned(self, connection: str | Assignment, **extensions: Value) -> Group:
        """The group of all its tickets: what an assigner returns for it."""
        assignment = connection if isinstance(connection, Assignment) else Assignment(connection, extensions)
        return Group(self.ticket_ids, assignment)

    def to_message(self) -> messages_pb2.Match:
        message = messages_pb2.Match(
            match_id=self.id,
            match_profile=self.profile,
            match_function=self.function,
            tickets=[ticket.message for ticket in self.tickets],
            allocate_gameserver=self.allocate,
        )
        if self.extensions:
            values.pack_into(message.extensions, self.extensions)
        if self.score is not None:
            message.extensions[EVALUATION_INPUT].Pack(extensions_pb2.DefaultEvaluationCriteria(score=self.score))
        if self.backfill is not None:
            message.backfill.CopyFrom(self.backfill.message)
        return message

    @classmethod
    def of(cls, message: messages_pb2.Match) -> Match:
        """DecodeError if its score cannot be read."""
        extensions = values.unpack(message.extensions)
        extensions.pop(EVALUATION_INPUT, None)
        return cls(
            [Ticket(ticket) for ticket in message.tickets],
            id=message.match_id,
            profile=message.match_profile,
            function=message.match_function,
            score=_score(message),
            extensions=extensions,
            backfill=Backfill(message.backfill) if message.HasField("backfill") else None,
            allocate=message.allocate_gameserver,
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Tickets that get the same assignment."""

    ticket_ids: Sequence[str]
    assignment: Assignment

    @classmethod
    def of(cls, message: messages_pb2.AssignmentGroup) -> Group:
        return cls(list(message.ticket_ids), Assignment.of(message.assignment))


MatchFunction = Callable[[Waiting], Iterable[Match] | Awaitable[Iterable[Match]]]
"""Async or not. Matches of tickets that are not in `Waiting` are dropped."""
Evaluator = Callable[[Sequence[Match]], Iterable[str] | Awaitable[Iterable[str]]]
"""The ids of the matches that stand."""
Assigner = Callable[[Sequence[Match]], Iterable[Group | Exception] | Awaitable[Iterable[Group | Exception]]]
"""Finds game servers. The tickets of matches that it leaves out wait on; an exception among the groups says why."""


def best_first(matches: Sequence[Match]) -> list[str]:
    """The evaluator unless another one is given: no ticket and no backfill twice, the best score first.

    Matches without a score come last; of equal ones, the first come first.
    """
    return [match.id for match in without_overlaps(matches)]


def without_overlaps(matches: Sequence[Match]) -> list[Match]:
    """Those that `best_first` keeps."""
    if any(match.score is not None for match in matches):
        matches = sorted(matches, key=lambda match: -_rank(match))
    taken: set[str] = set()
    kept = []
    for match in matches:
        ids = match.ticket_ids
        wanted = ids if match.backfill is None or not match.backfill.id else [*ids, match.backfill.id]
        if taken.isdisjoint(wanted) and len(set(ids)) == len(ids):
            taken.update(wanted)
            kept.append(match)
    return kept


def _rank(match: Match) -> float:
    return -math.inf if match.score is None or math.isnan(match.score) else match.score


def _score(message: messages_pb2.Match) -> float | None:
    if EVALUATION_INPUT not in message.extensions:
        return None
    criteria = extensions_pb2.DefaultEvaluationCriteria()
    if not message.extensions[EVALUATION_INPUT].Unpack(criteria):
        raise DecodeError(f"{EVALUATION_INPUT} of match {message.match_id!r} is no DefaultEvaluationCriteria")
    return criteria.score
