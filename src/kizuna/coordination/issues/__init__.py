"""Issues, each worked on by one process at a time."""

from kizuna.coordination.issues.issues import COMPLETED, ENDED, EVENTS, PENDING, PROCESSING, Issues
from kizuna.coordination.issues.lists import Fault, Issue

__all__ = ["COMPLETED", "ENDED", "EVENTS", "PENDING", "PROCESSING", "Fault", "Issue", "Issues"]
