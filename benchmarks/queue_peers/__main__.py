"""One process of one peer. The peer's module is imported by its name, and is never __main__: some queues know tasks by
the name of their module, and producer and worker must agree on it.
"""

from __future__ import annotations

import importlib
import sys

from benchmarks.peer_roles import end_with_standard_input
from benchmarks.queue_peers.roles import obey

name, role = sys.argv[1:]
peer = importlib.import_module(f"benchmarks.queue_peers.{name}")
if role == "producer":
    obey(peer.connect)
else:
    end_with_standard_input()
    peer.work() if role == "worker" else peer.serve()
