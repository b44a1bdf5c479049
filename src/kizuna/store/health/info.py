"""How the server is: its health, its metrics, how full it is, and whether we keep data on it at all.

Everything is computed from the numbers in INFO, never from the `_human` texts, which lose digits and change
their unit. The functions that take an `Info` do no I/O.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, Struct, UnsetType

from kizuna.errors import KizunaError, PermissionDenied, StoreError, UnsafeServer
from kizuna.store.health.versions import OLDEST, is_too_old, version_of
from kizuna.store.replies import answered

if TYPE_CHECKING:
    from kizuna.store.client import Store

log = logging.getLogger("kizuna.store")

Info = dict[str, str]
"""What INFO tells, by name."""

MEBIBYTE = 1024 * 1024
FULL = 0.9
"""From here on, a server is about to refuse writes."""


class MemoryMetrics(Struct, frozen=True):
    used: int
    peak: int
    fragmentation: float


class ClientMetrics(Struct, frozen=True):
    connected: int
    blocked: int


class OperationMetrics(Struct, frozen=True, rename="camel"):
    commands_processed: int
    input_bytes: int
    output_bytes: int


class KeyMetrics(Struct, frozen=True):
    expired: int
    evicted: int


class PerformanceMetrics(Struct, frozen=True, rename="camel"):
    hit_rate: float
    keyspace_hits: int
    keyspace_misses: int


class ServerMetrics(Struct, frozen=True):
    """As JSON it has camelCase names: `operations.commandsProcessed`."""

    timestamp: int
    """Milliseconds since the epoch, by the clock of this machine."""
    memory: MemoryMetrics
    clients: ClientMetrics
    operations: OperationMetrics
    keys: KeyMetrics
    performance: PerformanceMetrics


class Health(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Of an unhealthy server nothing is known but the error."""

    status: Literal["healthy", "unhealthy"]
    response_time: float | UnsetType = UNSET
    """Milliseconds from PING to PONG; of several servers, the slowest."""
    memory_usage: float | UnsetType = UNSET
    """MiB; of several servers, the sum."""
    uptime: int | UnsetType = UNSET
    """Seconds; of several servers, the one that was started last."""
    connected_clients: int | UnsetType = UNSET
    error: str | UnsetType = UNSET


# -- from INFO, without I/O ---------------------------------------------------------------------------------


def parse_info(reply: bytes | str) -> Info:
    text = reply if isinstance(reply, str) else reply.decode(errors="replace")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))


def number(info: Info, name: str) -> int:
    """0 where this server does not tell: servers differ in what they count."""
    return int(info.get(name) or 0)


def hit_rate_of(info: Info) -> float:
    """The share of reads that found their key; 0 before the first read."""
    hits, misses = number(info, "keyspace_hits"), number(info, "keyspace_misses")
    return hits / (hits + misses) if hits + misses else 0.0


def fragmentation(info: Info) -> float:
    """Memory that the server's process holds, for each byte that is in use."""
    return float(info.get("mem_fragmentation_ratio") or 0)


def metrics_of(info: Info, timestamp_ms: int) -> ServerMetrics:
    return ServerMetrics(
        timestamp=timestamp_ms,
        memory=MemoryMetrics(
            used=number(info, "used_memory"),
            peak=number(info, "used_memory_peak"),
            fragmentation=fragmentation(info),
        ),
        clients=ClientMetrics(connected=number(info, "connected_clients"), blocked=number(info, "blocked_clients")),
        operations=OperationMetrics(
            commands_processed=number(info, "total_commands_processed"),
            input_bytes=number(info, "total_net_input_bytes"),
            output_bytes=number(info, "total_net_output_bytes"),
        ),
        keys=KeyMetrics(expired=number(info, "expired_keys"), evicted=number(info, "evicted_keys")),
        performance=PerformanceMetrics(
            hit_rate=hit_rate_of(info),
            keyspace_hits=number(info, "keyspace_hits"),
            keyspace_misses=number(info, "keyspace_misses"),
        ),
    )


def summed(infos: Iterable[Info]) -> Info:
    """The counts of several primaries as if they were one server, as far as `metrics_of` reads them.

    Memory that is fragmented on one of them is not mended by the others: of ratios, the worst counts.
    """
    infos = list(infos)
    total = {name: str(sum(number(info, name) for info in infos)) for name in _COUNTED}
    return total | {"mem_fragmentation_ratio": str(max(map(fragmentation, infos)))}


_COUNTED = (
    "used_memory", "used_memory_peak", "connected_clients", "blocked_clients", "total_commands_processed",
    "instantaneous_ops_per_sec", "total_net_input_bytes", "total_net_output_bytes", "expired_keys",
    "evicted_keys", "keyspace_hits", "keyspace_misses",
)  # fmt: skip


def memory_limit(info: Info) -> int:
    """Bytes that the server may use: maxmemory, or the machine's memory where that is 0. 0: it does not tell."""
    return number(info, "maxmemory") or number(info, "total_system_memory")


def memory_pressure(info: Info) -> float:
    """How much of its limit the server uses; 1 and more: it refuses writes. 0 where it tells no limit."""
    limit = memory_limit(info)
    # Buffers of replicas and of the append-only file do not count when the server decides whether it is full.
    used = number(info, "used_memory") - number(info, "mem_not_counted_for_evict")
    return used / limit if limit else 0.0


def reasons_not_ready(info: Info) -> list[str]:
    """Why the server would not take a write now, or soon not; empty if it would."""
    reasons = []
    if number(info, "loading"):
        reasons.append("the server is still reading its data from disk")
    if info.get("role") == "slave":
        reasons.append("the server is a replica and takes no writes")
    if info.get("aof_last_write_status", "ok") != "ok":
        reasons.append("the server cannot write to its append-only file")
    if (pressure := memory_pressure(info)) > FULL:
        reasons.append(f"the server's memory is {pressure:.0%} full")
    return reasons


def refuse_unsafe(info: Info, server: str) -> None:
    """Raises UnsafeServer where data would be lost by design, or where commands that we need are missing."""
    if is_too_old(info):
        raise UnsafeServer(f"{version_of(info)} is too old", server, f"{OLDEST} or newer is needed")
    policy = info.get("maxmemory_policy", "")
    if policy.startswith("allkeys-"):
        raise UnsafeServer(
            f"maxmemory-policy is {policy}: when its memory is full, the server throws away keys that are in use",
            server,
            "run there: CONFIG SET maxmemory-policy noeviction",
        )


# -- asking the server --------------------------------------------------------------------------------------


async def ask_info(store: Store, *, timeout_s: float | None = None) -> dict[str, Info | StoreError]:
    """INFO of each primary, by its address; of one that did not tell, the error, with what to grant."""
    told: dict[str, Info | StoreError] = {}
    for server, reply in (await store.ask_each_primary("INFO", timeout_s=timeout_s)).items():
        if isinstance(reply, PermissionDenied):
            told[server] = info_denied(reply, store.target.username)
        else:
            told[server] = reply if isinstance(reply, StoreError) else parse_info(reply)
    return told


async def read_info(store: Store, *, timeout_s: float | None = None) -> dict[str, Info]:
    """INFO of each primary, by its address. Raises the first StoreError."""
    infos: dict[str, Info] = {}
    for server, told in (await ask_info(store, timeout_s=timeout_s)).items():
        if isinstance(told, StoreError):
            raise told
        infos[server] = told
    return infos


def info_denied(error: PermissionDenied, username: str) -> PermissionDenied:
    """The same, with what to grant."""
    return PermissionDenied(error.what, error.server, f"allow it: ACL SETUSER {username or 'default'} +info")


async def check_server(store: Store) -> None:
    """Raises UnsafeServer if one of the primaries is too old, or set up so that it throws our keys away.

    Users with narrow rights may not ask; somebody with wider ones has set them up, and can ask `kizuna doctor`.
    """
    try:
        infos = await read_info(store)
    except PermissionDenied as error:
        log.warning("server not checked", extra={"server": error.server, "reason": str(error)})
        return
    for server, info in infos.items():
        refuse_unsafe(info, server)


async def collect_metrics(store: Store) -> ServerMetrics:
    """Of several primaries, the sums. Raises StoreError."""
    infos = await read_info(store)
    return metrics_of(summed(infos.values()), int(time.time() * 1000))


async def check_health(store: Store) -> Health:
    """Never raises an error of ours: that the server cannot be asked is the answer."""
    try:
        response_time_ms = await ping(store)
        infos = await read_info(store)
    except KizunaError as error:
        return Health("unhealthy", error=str(error))
    return health_of(infos.values(), response_time_ms)


async def ping(store: Store) -> float:
    """Milliseconds until the slowest primary has answered. Raises StoreError."""
    # Not the loop's time: that of uvloop moves in whole milliseconds.
    began = time.perf_counter()
    await answered(store.call_each_primary("PING"))
    return (time.perf_counter() - began) * 1000


def health_of(infos: Iterable[Info], response_time_ms: float) -> Health:
    infos = list(infos)
    return Health(
        "healthy",
        response_time=round(response_time_ms, 3),
        memory_usage=round(sum(number(info, "used_memory") for info in infos) / MEBIBYTE, 3),
        uptime=min(number(info, "uptime_in_seconds") for info in infos),
        connected_clients=sum(number(info, "connected_clients") for info in infos),
    )
