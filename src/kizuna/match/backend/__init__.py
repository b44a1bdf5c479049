"""What makes matches of tickets, and has them assigned."""

from kizuna.match.backend.backend import Backend
from kizuna.match.backend.tick import Tick

__all__ = ["Backend", "Tick"]
