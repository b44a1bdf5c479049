"""Locks with a line, a turn and a number."""

from kizuna.coordination.locks.holders import Holder
from kizuna.coordination.locks.keeping import Held
from kizuna.coordination.locks.locks import Locks

__all__ = ["Held", "Holder", "Locks"]
