"""How full the server is, and what memory does about it."""

from kizuna.memory.pressure.measuring import Pressure, measure
from kizuna.memory.pressure.relieving import Relief, Spillable, relieve
from kizuna.memory.pressure.watch import PressureWatch

__all__ = ["Pressure", "PressureWatch", "Relief", "Spillable", "measure", "relieve"]
