"""What tests of promises look at and begin with."""

from __future__ import annotations

from typing import Any

from tests.memory.exactness import read_below

from kizuna.settings import MemorySettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import ServerProcess


def on(server: ServerProcess, root: str, **memory: Any) -> Settings:
    roots = RootsSettings(system=root, coordination=root, units=root, memory=root)
    return Settings(store=StoreSettings(url=server.url), roots=roots, memory=MemorySettings(**memory))


def item_key(root: str, id_: str) -> str:
    return f"{root}:memory:short:item:{id_}"


def everything(server: ServerProcess, root: str) -> dict[bytes, Any]:
    with server.connect() as conversation:
        return {name: (one.kind, one.value) for name, one in read_below(conversation, root).items()}
