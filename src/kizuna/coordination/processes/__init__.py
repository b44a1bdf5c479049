"""Who is in the fleet, and who gives back what the dead held."""

from kizuna.coordination.processes.processes import Process, Processes

__all__ = ["Process", "Processes"]
