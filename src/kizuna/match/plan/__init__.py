"""What a backend does, from a file."""

from kizuna.match.plan.plan import Plan, Planned

__all__ = ["Plan", "Planned"]
