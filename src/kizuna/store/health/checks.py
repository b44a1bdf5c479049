"""What `kizuna doctor` thinks of a server, one small decision at a time. Does no I/O.

Each function takes facts and returns a `Check`: a verdict, what was found, and what mends it. What mends is a
command for the server wherever there is one (`CONFIG SET …`), else a sentence.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from kizuna.store.events.flags import NONE, SETTING, Letters, lacking, with_letters
from kizuna.store.health.info import FULL, Info, memory_limit, memory_pressure, number
from kizuna.store.health.versions import OLDEST, is_too_old, is_valkey, numbers, version_of
from kizuna.store.keys import SLOTS

Verdict = Literal["pass", "warn", "fail"]

# Changes of strings, generic commands and expiry, by key.
NOTIFICATIONS = frozenset("K$gx")
GETTING_FULL = 0.8
SLOW_P50_MS, SLOW_P99_MS = 5.0, 50.0
SKEW_WARN_S, SKEW_FAIL_S = 1.0, 60.0

_AVOID_COPY = "min-string-size-avoid-copy-reply"
# From 9.1 on, messages of this size and more bypass the limit that drops slow subscribers; below, it works.
_AVOID_COPY_SAFE = 2_147_483_647
_PUBSUB_LIMIT = "pubsub 33554432 8388608 60"
_NOT_SEEN = "this user may not read the server's configuration"
_ALLOW_CONFIG = "allow it to see: ACL SETUSER <user> +config|get"


class Check(Struct, frozen=True):
    check: str
    verdict: Verdict
    found: str
    mend: str = ""


class Unheard(Struct, frozen=True):
    """Why changes of keys are not heard, and what mends that."""

    reason: str
    mend: str


class ServerFacts(Struct, frozen=True, kw_only=True):
    """What was learned about one primary."""

    address: str
    info: Info
    config: Mapping[str, str] | None
    """The options that checks look at; None if we may not see them."""
    latencies_ms: Sequence[float]
    skew_s: float
    """How far its clock is ahead of ours."""
    cluster: Info
    """CLUSTER INFO; empty if it is no node of a cluster."""


def unreachable(problem: str, mend: str) -> Check:
    return Check("reachable", "fail", problem, mend)


def latency(latencies_ms: Sequence[float]) -> Check:
    ordered = sorted(latencies_ms)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    found = f"PING takes {p50:.2f} ms (p50), {p99:.2f} ms (p99)"
    if p50 > SLOW_P50_MS or p99 > SLOW_P99_MS:
        mend = "bring the two closer together, or see what keeps the server busy: SLOWLOG GET 10"
        return Check("latency", "warn", found, mend)
    return Check("latency", "pass", found)


def version(info: Info) -> Check:
    if is_too_old(info):
        return Check("version", "fail", f"{version_of(info)} is too old", f"use {OLDEST} or newer")
    return Check("version", "pass", version_of(info))


def topology(kind: str, server: ServerFacts) -> Check:
    """Whether this server takes writes, who follows it, and, on a cluster, whether every slot has somebody."""
    info, mode = server.info, server.info.get("server_mode") or server.info.get("redis_mode", "")
    if mode == "sentinel":
        mend = "use redis+sentinel://host:port,host:port/name as store.url"
        return Check("topology", "fail", f"{server.address} is a sentinel, not a server", mend)
    if info.get("role") == "slave":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        return Check(
            "topology", "fail", f"{server.address} is a replica of {primary}", "point store.url at the primary"
        )
    if server.cluster:
        return _cluster(kind, server)
    lagging = [replica["ip"] + ":" + replica["port"] for replica in replicas(info) if replica["state"] != "online"]
    found = f"{kind}, primary {server.address}, {_replicas_in_sync(info)}"
    if lagging:
        return Check("topology", "warn", f"{found}; not in sync: {', '.join(lagging)}", "see the log of the replica")
    if kind == "sentinel" and not replicas(info):
        return Check("topology", "warn", f"{found}: nobody can take over", "attach one: REPLICAOF <primary> <port>")
    return Check("topology", "pass", found)


def _cluster(kind: str, server: ServerFacts) -> Check:
    state, assigned = server.cluster.get("cluster_state"), number(server.cluster, "cluster_slots_assigned")
    working = number(server.cluster, "cluster_slots_ok")
    found = f"cluster, primary {server.address}, {working} of {SLOTS} slots served, {_replicas_in_sync(server.info)}"
    if assigned < SLOTS:
        return Check("topology", "fail", found, "give the others away as well: valkey-cli --cluster fix <host:port>")
    if state != "ok" or working < SLOTS:
        return Check("topology", "fail", found, "bring back the nodes that failed: CLUSTER NODES shows them")
    if kind != "cluster":
        mend = "use redis+cluster:// as store.url; with redis:// only the keys of this one node are reached"
        return Check("topology", "warn", found, mend)
    return Check("topology", "pass", found)


def replicas(info: Info) -> list[dict[str, str]]:
    """`slave0:ip=127.0.0.1,port=6380,state=online,offset=…,lag=0`, and so on."""
    lines = [value for name, value in info.items() if name.startswith("slave") and value.startswith("ip=")]
    return [dict(part.split("=", 1) for part in line.split(",")) for line in lines]


def _replicas_in_sync(info: Info) -> str:
    followers = replicas(info)
    online = sum(replica["state"] == "online" for replica in followers)
    return f"{online} of {len(followers)} replicas in sync" if followers else "no replica"


def persistence(info: Info, config: Mapping[str, str] | None) -> Check:
    if info.get("aof_last_write_status", "ok") != "ok":
        mend = "make room on the server's disk; it takes writes again by itself"
        return Check("persistence", "fail", "the last write to the append-only file failed", mend)
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        mend = "see the server's log for the reason, then: BGSAVE"
        return Check("persistence", "fail", "the last snapshot failed", mend)
    if number(info, "aof_enabled"):
        return _append_only(None if config is None else config.get("appendfsync"))
    if config is None:
        found = f"no append-only file; whether there are snapshots is not known: {_NOT_SEEN}"
        return Check("persistence", "warn", found, _ALLOW_CONFIG)
    if config.get("save"):
        found = f"snapshots only ({config['save']}): a crash loses what was written since the last one"
        return Check("persistence", "warn", found, "CONFIG SET appendonly yes")
    return Check("persistence", "fail", "none: a restart of the server loses everything", "CONFIG SET appendonly yes")


def _append_only(appendfsync: str | None) -> Check:
    if appendfsync == "always":
        return Check("persistence", "pass", "append-only file, synced before each answer: nothing is lost")
    if appendfsync == "everysec":
        found = "append-only file, synced each second: a crash loses nothing, a power cut up to a second"
        return Check("persistence", "pass", found)
    if appendfsync is None:
        return Check(
            "persistence", "warn", f"append-only file; how it is synced is not known: {_NOT_SEEN}", _ALLOW_CONFIG
        )
    found = "append-only file, synced when the system likes: a power cut can lose half a minute"
    return Check("persistence", "warn", found, "CONFIG SET appendfsync everysec")


def eviction(info: Info) -> Check:
    policy = info.get("maxmemory_policy", "unknown")
    mend = "CONFIG SET maxmemory-policy noeviction"
    if policy == "noeviction":
        return Check("eviction", "pass", "noeviction: a full server refuses writes and loses nothing")
    if policy.startswith("volatile-"):
        found = f"{policy}: a full server throws away keys that have a TTL, such as locks, before their time"
        return Check("eviction", "warn", found, mend)
    found = f"{policy}: a full server throws away any key; kizuna refuses to start here"
    return Check("eviction", "fail", found, mend)


def notifications(config: Mapping[str, str] | None, unheard: Unheard | None, poll_every_s: float) -> Check:
    """`unheard` is what an attempt to hear of a change came to; where flags are missing, there was none."""
    name = "notifications"
    flags = "" if config is None else config.get(SETTING, "")
    missing = "".join(sorted(missing_notifications(config)))
    look = (
        f"units look every {poll_every_s:g} s instead of being told, config and flags every 0.5 s, and watching fails"
    )
    if missing:
        found = f"{SETTING} is {flags!r}, {missing} missing: kizuna sets it when it listens; where it may not, {look}"
        return Check(name, "warn", found, f"CONFIG SET {SETTING} {with_letters(flags, NOTIFICATIONS)}")
    if unheard is not None:
        return Check(name, "warn", f"changes of keys do not reach this user ({unheard.reason}): {look}", unheard.mend)
    if config is None:
        return Check(name, "pass", f"changes of keys are announced, although {_NOT_SEEN}")
    return Check(name, "pass", f"{SETTING} is {flags}")


def missing_notifications(config: Mapping[str, str] | None) -> Letters:
    """None as far as we can see, if we may not see them."""
    return NONE if config is None else lacking(config.get(SETTING, ""), NOTIFICATIONS)


def not_announced() -> Unheard:
    mend = f"CONFIG SET {SETTING} {with_letters('', NOTIFICATIONS)}, or let this user do so: ACL SETUSER <user> +config"
    return Unheard("they are not announced", mend)


def memory(info: Info) -> Check:
    used, limit, pressure = number(info, "used_memory"), memory_limit(info), memory_pressure(info)
    if not limit:
        return Check("memory", "pass", f"{size(used)} used; the server tells no limit")
    whose = "maxmemory" if number(info, "maxmemory") else "the machine's memory, since maxmemory is 0"
    found = f"{size(used)} of {size(limit)} used ({pressure:.0%}; {whose})"
    if pressure <= GETTING_FULL:
        return Check("memory", "pass", found)
    # Twice of what is used is half full: enough to notice the next time before it is full.
    more = f"CONFIG SET maxmemory {2 * used}"
    mend = more if number(info, "maxmemory") else "give the machine more memory, or let data end sooner"
    return Check("memory", "fail" if pressure > FULL else "warn", found, mend)


def slow_subscribers(info: Info, config: Mapping[str, str] | None) -> Check:
    """A subscriber that does not read must be dropped before it has filled the server's memory."""
    name = "slow subscribers"
    if config is None:
        return Check(name, "warn", f"whether they are dropped is not known: {_NOT_SEEN}", _ALLOW_CONFIG)
    if _pubsub_hard_limit(config.get("client-output-buffer-limit", "")) == 0:
        found = "client-output-buffer-limit has no limit for pubsub: one that does not read fills the memory"
        return Check(name, "warn", found, f'CONFIG SET client-output-buffer-limit "{_PUBSUB_LIMIT}"')
    avoids_from = int(config.get(_AVOID_COPY) or _AVOID_COPY_SAFE)
    if is_valkey(info) and numbers(info) >= (9, 1) and avoids_from < _AVOID_COPY_SAFE:
        found = f"those who are sent messages of {size(avoids_from)} and more are never dropped, and fill the memory"
        return Check(name, "warn", found, f"CONFIG SET {_AVOID_COPY} {_AVOID_COPY_SAFE}")
    return Check(name, "pass", "are dropped before they fill the memory")


def _pubsub_hard_limit(limits: str) -> int | None:
    """Of `normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60`; None if it is not told."""
    words = limits.split()
    return int(words[words.index("pubsub") + 1]) if "pubsub" in words else None


def clock(skew_s: float) -> Check:
    if abs(skew_s) < SKEW_WARN_S:
        return Check("clock", "pass", f"{abs(skew_s) * 1000:.0f} ms apart from this machine's")
    where = "ahead of" if skew_s > 0 else "behind"
    found = f"the server's clock is {abs(skew_s):.1f}s {where} this machine's"
    mend = "set both by NTP: timedatectl set-ntp true"
    return Check("clock", "fail" if abs(skew_s) >= SKEW_FAIL_S else "warn", found, mend)


def security(hosts: Sequence[str], *, tls: bool, password: bool) -> Check:
    if all(map(is_loopback, hosts)):
        return Check("security", "pass", "the server is on this machine")
    lacks = [what for what, there in (("TLS", tls), ("a password", password)) if not there]
    if not lacks:
        return Check("security", "pass", "TLS and a password")
    mends = {
        "TLS": "use rediss:// as store.url",
        "a password": "set store.password_file, and a password at the server (ACL SETUSER)",
    }
    found = f"no {' and no '.join(what.removeprefix('a ') for what in lacks)} over the network"
    return Check("security", "warn", found, "; ".join(mends[what] for what in lacks))


def is_loopback(host: str) -> bool:
    """Also for the path of a unix socket."""
    if host == "localhost" or host.startswith("/"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def clients(info: Info) -> Check:
    connected, most = number(info, "connected_clients"), number(info, "maxclients")
    if not most:
        return Check("clients", "pass", f"{connected} connected; the server tells no limit")
    found, share = f"{connected} of {most} connected", connected / most
    if share <= GETTING_FULL:
        return Check("clients", "pass", found)
    return Check("clients", "fail" if share > FULL else "warn", found, f"CONFIG SET maxclients {2 * most}")


def size(in_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if in_bytes < 1024:
            return f"{in_bytes:.0f} {unit}" if unit == "B" else f"{in_bytes:.1f} {unit}"
        in_bytes /= 1024
    return f"{in_bytes:.1f} TiB"
