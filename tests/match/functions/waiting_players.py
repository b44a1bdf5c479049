"""Tickets and pools for match functions, made by hand or of any kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.match.backfills import Backfill
from kizuna.match.matches import Match, Waiting
from kizuna.match.openmatch import messages_pb2
from kizuna.match.pools import Pool, Profile
from kizuna.match.tickets import Ticket, fill, new_ticket

NOW_S = 1_800_000_000.0
PATIENT = hypothesis_settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])

_numbers = count()


def ticket(*, waited_s: float = 0.0, tags: Sequence[str] = (), **doubles: float) -> Ticket:
    """With an id of its own; `latency_eu=20` is the argument latency.eu."""
    message = new_ticket(tags=tags, doubles={name.replace("latency_", "latency."): it for name, it in doubles.items()})
    message.id = f"ticket-{next(_numbers):06}"
    message.create_time.FromNanoseconds(round((NOW_S - waited_s) * 1e9))
    return Ticket(message)


def backfill(id_: str = "running", *, extensions: Mapping[str, int] | None = None, **doubles: float) -> Backfill:
    message = messages_pb2.Backfill(id=id_, generation=3)
    fill(message, [], doubles, {}, extensions, {})
    return Backfill(message)


def waiting(*pools: Sequence[Ticket], backfills: Sequence[Backfill] = ()) -> Waiting:
    """Pools called 0, 1, …; the backfills are those of the first."""
    named = {str(number): oldest_first(tickets) for number, tickets in enumerate(pools)}
    profile = Profile("ranked", [Pool(name) for name in named])
    return Waiting(profile, named, NOW_S, {"0": list(backfills)} if backfills else {})


def oldest_first(tickets: Sequence[Ticket]) -> list[Ticket]:
    return sorted(tickets, key=lambda ticket: (ticket.created_ns, ticket.id))


def in_pools(tickets: Sequence[Ticket], places: Sequence[int]) -> Waiting:
    """Each ticket in the first pool, the second, or both."""
    pairs = list(zip(tickets, places, strict=False))
    return waiting([one for one, place in pairs if place != 1], [one for one, place in pairs if place != 0])


def ids_of(matches: Sequence[Match]) -> list[str]:
    return [ticket.id for match in matches for ticket in match.tickets]


def shape_of(matches: Sequence[Match]) -> list[object]:
    """All that two runs have to have in common: everything but the ids of the matches."""
    return [(match.ticket_ids, match.score, dict(match.extensions), match.allocate) for match in matches]


waits = st.integers(0, 120).map(float)
skills = st.one_of(st.integers(0, 60).map(float), st.floats(0, 3000, width=32))
sizes = st.sampled_from([1.0, 1.0, 1.0, 2.0, 3.0])

players = st.builds(lambda waited_s, skill: ticket(waited_s=waited_s, skill=skill), waits, skills)
parties = st.builds(
    lambda waited_s, skill, size: ticket(waited_s=waited_s, skill=skill, party_size=size), waits, skills, sizes
)
latencies = st.dictionaries(st.sampled_from(["eu", "us", "asia"]), st.integers(5, 200).map(float))
far_players = st.builds(
    lambda waited_s, found: ticket(waited_s=waited_s, **{f"latency_{name}": ms for name, ms in found.items()}),
    waits,
    latencies,
)
