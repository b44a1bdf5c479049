"""What kizuna's own tests use, for the tests of those who build on it. See docs/testing.md.

Nothing here needs pytest but `kizuna.testing.fixtures`.
"""

from __future__ import annotations

from kizuna.testing.clocks import MovableClock
from kizuna.testing.clusters import ClusterSetup
from kizuna.testing.proxy import ChaosProxy
from kizuna.testing.sentinels import SentinelSetup
from kizuna.testing.servers import ServerProcess
from kizuna.testing.services import assert_starts_and_stops
from kizuna.testing.waiting import eventually

__all__ = [
    "ChaosProxy",
    "ClusterSetup",
    "MovableClock",
    "SentinelSetup",
    "ServerProcess",
    "assert_starts_and_stops",
    "eventually",
]
