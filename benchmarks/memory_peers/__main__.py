"""One process of one peer."""

from __future__ import annotations

import importlib
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from benchmarks.memory_peers.roles import ORDERS, Subject
from benchmarks.peer_roles import obey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def _subject() -> AsyncIterator[Subject]:
    async with peer.remembering() as memory:
        yield Subject(memory)


name, _ = sys.argv[1:]
peer = importlib.import_module(f"benchmarks.memory_peers.{name}")
obey(_subject(), ORDERS)
