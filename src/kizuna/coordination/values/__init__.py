"""Values that change while programs run: what config and flags have in common."""

from kizuna.coordination.values.history import Entry
from kizuna.coordination.values.live_values import ANYTHING, NOTHING, Change, Changes, Condition, LiveValues

__all__ = ["ANYTHING", "NOTHING", "Change", "Changes", "Condition", "Entry", "LiveValues"]
