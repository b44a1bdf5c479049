"""What the backends of a dead process had taken goes back to the others. Needs nothing but the store, so that any
member of the fleet can do it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kizuna.errors import PermissionDenied
from kizuna.match.servers import Servers
from kizuna.match.shard import Shard
from kizuna.store.sharding import roots_for

if TYPE_CHECKING:
    from kizuna.store.client import Store


def backend_name(process: str, label: str) -> str:
    """Of the backends of a process, each has a number, or what somebody calls it."""
    return f"{_as_name(process)}~{_as_name(label)}"


async def give_back(store: Store, process: str) -> None:
    """Harmless when repeated."""
    settings = store.settings
    if store.target.kind == "cluster" and settings.match.shards == 1:
        # Nobody can match there.
        return
    roots, servers = roots_for(store, "match", settings.roots.match, settings.match.shards), Servers(store)
    for prefix in roots.all:
        shard = Shard(servers, prefix, roots)
        for name in await _names_of_backends(store, shard):
            backend = name.decode(errors="replace")
            if backend.rpartition("~")[0] == _as_name(process):
                await shard.give_back(backend)
                await store.call("HDEL", shard.backends, backend)


async def _names_of_backends(store: Store, shard: Shard) -> list[bytes]:
    """None where we may not look: then matchmaking is not our business, and everything else is given back."""
    try:
        names: list[bytes] = await store.call("HKEYS", shard.backends)
    except PermissionDenied:
        return []
    return names


def _as_name(name: str) -> str:
    """As part of a key behind a bare prefix, where "/" and ":" have no place; "~" stands before the label."""
    return re.sub("[/:~]", "_", name)
