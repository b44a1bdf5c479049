"""The state that units share: `muf/[unit]/keep/[id]`, kept for a while, read by anybody, and watched."""

from kizuna.units.state.changes import StateChange
from kizuna.units.state.keep import Keep
from kizuna.units.state.watching import Changes, Watch

__all__ = ["Changes", "Keep", "StateChange", "Watch"]
