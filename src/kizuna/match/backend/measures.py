"""What a backend counts, for /metrics: under the names that minimatch's users have in their graphs, and under ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kizuna.metrics import Measure

if TYPE_CHECKING:
    from kizuna.match.backend.counts import Counts

_COUNTERS = {
    "ticks": "How often was looked for matches.",
    "failures": "Match functions, evaluators and assigners that failed.",
    "matches": "Matches that were made.",
    "assigned": "Tickets that were assigned.",
    "refused": "Groups that were not assigned, since a ticket of theirs was gone or assigned.",
    "released": "Tickets that were taken, and given back.",
    "given_back": "Tickets that were given back for a backend that had died, or had lost an answer.",
    "delivered_late": "Assignments that another backend had left behind.",
}
_PEER = "minimatch_backend"


def measures_of(counts: Counts) -> Iterator[Measure]:
    yield from _as_minimatch(counts)
    for name, text in _COUNTERS.items():
        yield Measure("counter", f"kizuna_match_{name}_total", text, getattr(counts, name))
    yield Measure("histogram", "kizuna_match_tick_seconds", "What a tick took.", counts.tick_s)
    yield Measure("histogram", "kizuna_match_wait_seconds", "How long assigned tickets had waited.", counts.wait_s)
    yield from _pools(counts)


def _as_minimatch(counts: Counts) -> Iterator[Measure]:
    text = "All tickets that wait. Not to be summed: each backend counts all of them."
    yield Measure("gauge", "minimatch_store_tickets_count", text, counts.tickets)
    yield Measure("counter", f"{_PEER}_tickets_fetched_total", "Tickets that were taken.", counts.fetched)
    text = "Tickets that an assigner had a server for."
    yield Measure("counter", f"{_PEER}_tickets_assigned_total", text, counts.proposed)
    for name, text, histogram in (
        ("fetch_tickets", "Taking tickets, and reading them.", counts.fetch_s),
        ("assigner", "Asking the assigner.", counts.assigner_s),
        ("assign_to_redis", "Writing assignments.", counts.assign_s),
    ):
        yield Measure("histogram", f"{_PEER}_{name}_latency_seconds", text, histogram)
    for profile, histogram in counts.function_s.items():
        text, labels = "Making matches of tickets.", {"match_profile": profile}
        yield Measure("histogram", f"{_PEER}_match_function_latency_seconds", text, histogram, labels)


def _pools(counts: Counts) -> Iterator[Measure]:
    # All of one name, and then all of the next: whoever reads a page refuses a name that comes twice.
    of_pools = [({"profile": profile, "pool": pool}, state) for (profile, pool), state in counts.pools.items()]
    for labels, state in of_pools:
        yield Measure("gauge", "kizuna_match_pool_tickets", "Tickets in a pool.", state.waiting, labels)
    text = "How long the oldest ticket of a pool has waited."
    for labels, state in of_pools:
        yield Measure("gauge", "kizuna_match_pool_oldest_seconds", text, state.oldest_s, labels)
