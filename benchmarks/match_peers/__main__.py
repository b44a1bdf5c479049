"""One process of one peer."""

from __future__ import annotations

import importlib
import sys

from benchmarks.match_peers.roles import ORDERS
from benchmarks.peer_roles import obey

name, role = sys.argv[1:]
peer = importlib.import_module(f"benchmarks.match_peers.{name}")
obey(getattr(peer, role)(), peer.ORDERS if role == "game" else ORDERS[role])
