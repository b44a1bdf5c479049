"""How full the server is, and what memory uses of it: from numbers, and what they mean."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from kizuna.memory import keys
from kizuna.memory.counting import sum_of
from kizuna.memory.pressure.sizing import estimate_bytes
from kizuna.store.health.info import Info, memory_limit, number, parse_info

if TYPE_CHECKING:
    from kizuna.settings import MemorySettings
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots

Level = Literal["calm", "shorten", "remove"]
LEVELS: tuple[Level, ...] = ("calm", "shorten", "remove")
"""What is done about it, and before it everything to the left."""


class ServerUse(Struct, frozen=True, kw_only=True):
    """Of the primary that holds one root."""

    root: str
    used: int
    """Bytes, without the buffers that do not count when the server decides whether it is full."""
    limit: int
    """maxmemory, or the machine's memory where that is 0; 0: the server tells neither."""
    level: Level
    """With the budget of all roots considered."""

    @property
    def ratio(self) -> float:
        return self.used / self.limit if self.limit else 0.0


class Pressure(Struct, frozen=True, kw_only=True):
    """Of several primaries the fullest; and the budget of memory, if that is fuller."""

    used: int
    limit: int
    ratio: float
    level: Level
    items: int
    root_bytes: int | None = None
    """What items and their indexes use, estimated; None where there is no budget."""
    budget_bytes: int = 0
    servers: tuple[ServerUse, ...] = ()
    """One for each root."""

    def server_of(self, root: str) -> ServerUse:
        return next(server for server in self.servers if server.root == root)

    def too_much(self, root: str, above: float) -> float:
        """How many bytes have to go below this root for both numbers to be no more than that share."""
        server = self.server_of(root)
        of_budget = (self.root_bytes or 0) - above * self.budget_bytes if self.budget_bytes else 0.0
        return max(server.used - above * server.limit, of_budget)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        servers = [msgspec.structs.asdict(server) | {"ratio": round(server.ratio, 4)} for server in self.servers]
        return msgspec.structs.asdict(self) | {"ratio": round(self.ratio, 4), "servers": servers}


async def measure(store: Store, roots: Roots) -> Pressure:
    """Asks the primary of each root. Raises StoreError."""
    settings = store.settings.memory
    infos = await asyncio.gather(*(_info(store, root) for root in roots.all))
    items = await sum_of(store, roots, "ZCARD", keys.ITEMS_EXPIRY)
    root_bytes = None
    if settings.budget_bytes:
        root_bytes = sum([await estimate_bytes(store, root) for root in roots.all])
    return pressure_of(roots.all, infos, settings, items=items, root_bytes=root_bytes)


async def _info(store: Store, root: str) -> Info:
    return parse_info(await store.call_beside(keys.ITEMS_EXPIRY.build(root), "INFO", "memory"))


# -- without I/O ----------------------------------------------------------------------------------------------


def pressure_of(
    roots: Sequence[str], infos: Sequence[Info], settings: MemorySettings, *, items: int, root_bytes: int | None
) -> Pressure:
    """From what the primary of each root told."""
    budget = settings.budget_bytes
    of_budget = root_bytes / budget if budget and root_bytes is not None else 0.0
    servers = tuple(
        ServerUse(
            root=root,
            used=used_of(info),
            limit=memory_limit(info),
            level=level_of(max(of_budget, _ratio(info)), settings),
        )
        for root, info in zip(roots, infos, strict=True)
    )
    fullest = max(servers, key=lambda server: server.ratio)
    used, limit = fullest.used, fullest.limit
    if root_bytes is not None and of_budget > fullest.ratio:
        used, limit = root_bytes, budget
    ratio = max(of_budget, fullest.ratio)
    return Pressure(
        used=used,
        limit=limit,
        ratio=ratio,
        level=level_of(ratio, settings),
        items=items,
        root_bytes=root_bytes,
        budget_bytes=budget,
        servers=servers,
    )


def used_of(info: Info) -> int:
    return number(info, "used_memory") - number(info, "mem_not_counted_for_evict")


def level_of(ratio: float, settings: MemorySettings) -> Level:
    if ratio > settings.remove_above:
        return "remove"
    return "shorten" if ratio > settings.shorten_above else "calm"


def _ratio(info: Info) -> float:
    limit = memory_limit(info)
    return used_of(info) / limit if limit else 0.0
