"""One process of one peer."""

from __future__ import annotations

import importlib
import sys

from benchmarks.peer_roles import end_with_standard_input, obey
from benchmarks.unit_peers.roles import ORDERS_OF_REQUESTERS, ORDERS_OF_RESPONDERS

name, role = sys.argv[1:]
peer = importlib.import_module(f"benchmarks.unit_peers.{name}")
if role == "requester":
    obey(peer.calling(), ORDERS_OF_REQUESTERS)
elif role == "responder":
    obey(peer.responding(), ORDERS_OF_RESPONDERS)
else:
    end_with_standard_input()
    peer.serve()
