"""How long a value lives, or is waited for: what the server is told, and what is refused."""

from __future__ import annotations

from kizuna.clock import milliseconds
from kizuna.errors import WrongValue
from kizuna.settings import LONGEST_KEPT_S


def lifetime_ms(ttl_s: float) -> int:
    """For PX and PEXPIRE. WrongValue if that is no time for which a value can be kept."""
    return milliseconds(checked_lifetime(ttl_s, "ttl_s"))


def checked_lifetime(seconds: float, what: str) -> float:
    """The same seconds. WrongValue, which says `what` they are, if nothing can live so long."""
    try:
        if 0 < seconds <= LONGEST_KEPT_S:
            return seconds
    except TypeError:
        # No number at all: text, or a timedelta.
        pass
    raise WrongValue(what, f"{seconds!r}", "seconds, above 0 and at most ten years")
