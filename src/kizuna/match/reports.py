"""What backends say about themselves, for people and for those who look after the dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from kizuna.store.client import Store

KEPT_S = 3_600
"""How long a report is kept that nobody renews."""


class PoolReport(msgspec.Struct, frozen=True):
    profile: str
    pool: str
    waiting: int
    oldest_s: float


class BackendReport(msgspec.Struct, frozen=True, kw_only=True):
    """Times are seconds; counts are since it began."""

    name: str
    at: float
    """When it was made, by the server's clock."""
    ticks: int
    fetched: int
    assigned: int
    matches: int
    failures: int
    wait_p50_s: float | None
    """How long tickets had waited that were assigned: half of them no longer than this. None before the first."""
    wait_p95_s: float | None
    wait_p99_s: float | None
    pools: list[PoolReport]


async def read_reports(store: Store, key: str) -> list[BackendReport]:
    """By name. What is no report, or the entry of a backend that has not made one yet, is left out."""
    found: dict[bytes, bytes] = await store.call("HGETALL", key)
    reports = []
    for _, body in sorted(found.items()):
        try:
            reports.append(msgspec.json.decode(body, type=BackendReport))
        except msgspec.MsgspecError:
            continue
    return reports
