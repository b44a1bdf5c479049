"""Are all indexes of memory exact?"""

from kizuna.memory.verifying.report import Finding, Report
from kizuna.memory.verifying.verification import verify

__all__ = ["Finding", "Report", "verify"]
