"""How long things live: the shortest, the usual and the longest life of each kind, and what lengthens it.

    life = usual life x (1 + stretch x level), within the bounds

The level of an item is its priority above 5, as a share of 10; of a result, what it cost, as a share of what is costly;
of a state, its importance; each from 0 to 1. A life that was asked for is taken as it is, within the bounds; and the
bounds are the script's to keep, by the server's clock. No I/O here.
"""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING

from msgspec import Struct

from kizuna.clock import milliseconds
from kizuna.errors import WrongValue
from kizuna.memory.item import HIGHEST_PRIORITY, USUAL_PRIORITY, Kind

if TYPE_CHECKING:
    from kizuna.settings import MemorySettings


class Life(Struct, frozen=True):
    """Of one kind, in seconds."""

    least_s: float
    usual_s: float
    most_s: float
    stretch: float = 0.0


class Policy:
    """What the settings say about lives."""

    def __init__(self, settings: MemorySettings) -> None:
        self._costly_s = settings.costly_s
        self.lives = {
            "item": Life(settings.item_least_s, settings.item_s, settings.item_most_s, settings.item_stretch),
            "context": Life(settings.context_least_s, settings.context_s, settings.context_most_s),
            "result": Life(settings.result_least_s, settings.result_s, settings.result_most_s, settings.result_stretch),
            "state": Life(settings.state_least_s, settings.state_s, settings.state_most_s, settings.state_stretch),
        }
        self.bounds = " ".join(
            f"{kind}:{milliseconds(life.least_s)}:{milliseconds(life.most_s)}" for kind, life in self.lives.items()
        )
        """As the scripts read them."""
        self.usual_item_ms = milliseconds(settings.item_s)
        self.usual_context_ms = milliseconds(settings.context_s)

    def item_ms(self, kind: Kind, priority: int, cost_s: float | None, importance: float | None) -> int:
        """The life of one that was not told how long to live."""
        level = self._level(kind, priority, cost_s or 0.0, importance or 0.0)
        if level == 0 and kind == "item":
            return self.usual_item_ms
        life = self.lives[kind]
        return milliseconds(life.usual_s * (1 + life.stretch * level))

    def _level(self, kind: Kind, priority: int, cost_s: float, importance: float) -> float:
        if kind == "item":
            return max(0, priority - USUAL_PRIORITY) / (HIGHEST_PRIORITY - USUAL_PRIORITY)
        return min(1.0, cost_s / self._costly_s) if kind == "result" else importance


def check_priority(priority: int) -> None:
    if type(priority) is not int or not 1 <= priority <= HIGHEST_PRIORITY:
        raise WrongValue("priority", f"{priority!r}", f"a whole number from 1 to {HIGHEST_PRIORITY}")


def is_number(value: object) -> bool:
    """Of whichever kind: other libraries have their own."""
    return isinstance(value, Real)


def check_cost(cost_s: float) -> None:
    if not is_number(cost_s) or not 0 <= cost_s < float("inf"):
        raise WrongValue("cost_s", f"{cost_s!r}", "the seconds that it took, 0 or more")


def check_importance(importance: float) -> None:
    if not is_number(importance) or not 0 <= importance <= 1:
        raise WrongValue("importance", f"{importance!r}", "a number from 0 to 1")
