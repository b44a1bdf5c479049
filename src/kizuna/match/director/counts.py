"""What a director has done since it started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kizuna.metrics import Histogram, Measure


@dataclass
class Counts:
    cycles: int = 0
    failed_functions: int = 0
    """Those that took too long among them."""
    rejected: int = 0
    """Proposals that the evaluator did not keep, or could not decide about."""
    dropped: int = 0
    """Those that it kept, and of which a ticket or a backfill was gone or taken."""
    taken: int = 0
    given_back: int = 0
    """Taken matches that their caller did not fetch."""
    cycle_s: Histogram = field(default_factory=Histogram)

    def measures(self, under_way: int) -> Iterator[Measure]:
        """For /metrics."""
        text = "FetchMatches calls that have not got all their matches."
        yield Measure("gauge", "kizuna_match_fetches_under_way", text, under_way)
        text = "Cycles in which the proposals of match functions were decided about."
        yield Measure("counter", "kizuna_match_cycles_total", text, self.cycles)
        text = "Match functions that failed, or took too long."
        yield Measure("counter", "kizuna_match_functions_failed_total", text, self.failed_functions)
        outcomes = {"taken": self.taken, "rejected": self.rejected, "dropped": self.dropped}
        for outcome, value in outcomes.items():
            text = "Matches that match functions proposed, and what became of them."
            yield Measure("counter", "kizuna_match_proposals_total", text, value, {"outcome": outcome})
        text = "Matches that were taken, and given back because nobody fetched them."
        yield Measure("counter", "kizuna_match_unfetched_total", text, self.given_back)
        text = "What a cycle took, without the one before it that it waited for."
        yield Measure("histogram", "kizuna_match_cycle_seconds", text, self.cycle_s)
