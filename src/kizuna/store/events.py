"""Hearing of changes."""

from __future__ import annotations

from kizuna.settings import Settings
from kizuna.store.dialing import Dialer
from kizuna.store.topology import Topology


class Events:
    def __init__(self, topology: Topology, dialer: Dialer, settings: Settings) -> None:
        self._topology, self._dialer, self._settings = topology, dialer, settings

    async def aclose(self) -> None:
        pass
