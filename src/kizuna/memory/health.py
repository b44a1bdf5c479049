"""How memory is: whether the server answers, is swept, has room, and what the backup says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kizuna.errors import KizunaError
from kizuna.memory import keys
from kizuna.memory.counting import sum_of
from kizuna.memory.pressure import Pressure, measure
from kizuna.metrics import Measure
from kizuna.store.health.info import Health, check_health

if TYPE_CHECKING:
    from kizuna.memory.counts import Counts
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots

# What is due is to be ended within two seconds; a process that was busy for a while is no reason to wake anybody.
_SWEEP_OVERDUE_S = 10.0


class MemoryHealth(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """As JSON it has camelCase names, and those of the server's health first."""

    status: Literal["healthy", "unhealthy"]
    response_time: float | UnsetType = UNSET
    """Milliseconds from PING to PONG."""
    memory_usage: float | UnsetType = UNSET
    """MiB that the server uses."""
    uptime: int | UnsetType = UNSET
    connected_clients: int | UnsetType = UNSET
    items: int | UnsetType = UNSET
    contexts: int | UnsetType = UNSET
    pressure: float | UnsetType = UNSET
    """The share of what may be used; 1 is full."""
    seconds_since_sweep: float | UnsetType = UNSET
    """Of this process; not there if it only reads."""
    backup: dict[str, float] = msgspec.field(default_factory=dict)
    """What the backup counts, if there is one."""
    problems: tuple[str, ...] = ()
    """Why it is unhealthy."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(msgspec.to_builtins(self))


async def check_memory(
    store: Store, roots: Roots, counts: Counts | None = None, backup: Iterable[Measure] = ()
) -> MemoryHealth:
    """Never raises an error of ours: that the server cannot be asked is the answer."""
    server = await check_health(store)
    told = {measure.name: measure.value for measure in backup if isinstance(measure.value, int | float)}
    since_sweep_s = None if counts is None else counts.seconds_since_sweep
    if server.status == "unhealthy":
        return health_of(server, None, 0, since_sweep_s, told)
    try:
        pressure = await measure(store, roots)
        contexts = await sum_of(store, roots, "ZCARD", keys.CONTEXTS_EXPIRY)
    except KizunaError as error:
        return health_of(Health("unhealthy", error=str(error)), None, 0, since_sweep_s, told)
    return health_of(server, pressure, contexts, since_sweep_s, told)


# -- without I/O ----------------------------------------------------------------------------------------------


def health_of(
    server: Health, pressure: Pressure | None, contexts: int, since_sweep_s: float | None, backup: Mapping[str, float]
) -> MemoryHealth:
    """`pressure` is None if the server could not be asked."""
    problems = problems_of(server, pressure, since_sweep_s)
    return MemoryHealth(
        status="unhealthy" if problems else "healthy",
        response_time=server.response_time,
        memory_usage=server.memory_usage,
        uptime=server.uptime,
        connected_clients=server.connected_clients,
        items=UNSET if pressure is None else pressure.items,
        contexts=UNSET if pressure is None else contexts,
        pressure=UNSET if pressure is None else round(pressure.ratio, 4),
        seconds_since_sweep=UNSET if since_sweep_s is None else round(since_sweep_s, 3),
        backup=dict(backup),
        problems=tuple(problems),
    )


def problems_of(server: Health, pressure: Pressure | None, since_sweep_s: float | None) -> list[str]:
    problems = [] if server.error is UNSET else [server.error]
    if pressure is not None and pressure.ratio >= 1:
        problems.append(f"there is no room: {pressure.used:,} bytes of {pressure.limit:,} are used")
    if since_sweep_s is not None and since_sweep_s > _SWEEP_OVERDUE_S:
        problems.append(f"this process has not swept for {since_sweep_s:.0f}s")
    return problems
