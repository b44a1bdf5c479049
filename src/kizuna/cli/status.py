"""`kizuna status`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.output import json_option, show

if TYPE_CHECKING:
    from kizuna.cli import Invocation
    from kizuna.settings import Settings
    from kizuna.store.client import Store
    from kizuna.store.health.info import Info


@click.command()
@json_option
@click.pass_obj
def status(invocation: Invocation, as_json: bool) -> None:
    """Show the server in use and how it is. Of a cluster, the sums over its primaries.

    An embedded server is not started for it; exit code 69 if there is none, or if nobody answers.

    \b
    $ kizuna status
    $ kizuna --url redis://db:6379 status --json | jq .memory.used
    """
    from kizuna.loop import run

    facts = run(look(invocation.settings))
    show(facts if as_json else screen(facts), as_json=as_json)


async def look(settings: Settings) -> dict[str, Any]:
    """Everything there is to show. Raises KizunaError."""
    from kizuna.store.client import Store

    refuse_to_start_it(settings)
    # Without the check for what is safe: this must show also a server that we would not work with.
    store = Store(settings)
    await store.open()
    try:
        return await facts_of(store)
    finally:
        await store.aclose()


def refuse_to_start_it(settings: Settings) -> None:
    from kizuna.errors import Unreachable
    from kizuna.store.embedded.server import EmbeddedServer
    from kizuna.store.targets import parse_target

    if parse_target(settings.store).kind != "embedded":
        return
    server = EmbeddedServer(settings.embedded).status()
    if server.state in ("stopped", "failed"):
        what = f"the embedded server failed ({server.reason})" if server.reason else "no embedded server runs"
        raise Unreachable(what, str(server.folder), "`kizuna up` or `kizuna server start` starts it")


async def facts_of(store: Store) -> dict[str, Any]:
    import msgspec

    from kizuna.settings import redact_url
    from kizuna.store.health.info import (
        health_of,
        memory_limit,
        memory_pressure,
        metrics_of,
        number,
        ping,
        read_info,
        summed,
    )
    from kizuna.store.health.versions import version_of

    response_ms = await ping(store)
    infos = await read_info(store)
    total = summed(infos.values())
    return {
        "url": redact_url(store.settings.store.url),
        "version": ", ".join(sorted({version_of(info) for info in infos.values()})),
        "topology": store.target.kind,
        "primaries": list(infos),
        "replicas": sum(number(info, "connected_slaves") for info in infos.values()),
        "persistence": ", ".join(sorted({persistence(info) for info in infos.values()})),
        "memoryLimit": sum(memory_limit(info) for info in infos.values()),
        "memoryPressure": round(max(memory_pressure(info) for info in infos.values()), 4),
        "operationsPerSecond": number(total, "instantaneous_ops_per_sec"),
        **msgspec.to_builtins(metrics_of(total, int(time.time() * 1000))),
        "health": msgspec.to_builtins(health_of(infos.values(), response_ms)),
    }


def persistence(info: Info) -> str:
    kept = "append-only file" if info.get("aof_enabled") == "1" else "no append-only file"
    failing = "err" in (info.get("aof_last_write_status"), info.get("rdb_last_bgsave_status"))
    return f"{kept}, and the last write to disk FAILED" if failing else kept


def screen(facts: dict[str, Any]) -> dict[str, str]:
    """One screen for people; what is a number for machines is a word here."""
    from kizuna.store.health.checks import size

    used, limit, health = facts["memory"]["used"], facts["memoryLimit"], facts["health"]
    reads = facts["performance"]["keyspaceHits"] + facts["performance"]["keyspaceMisses"]
    return {
        "server": facts["url"],
        "version": facts["version"],
        "topology": f"{facts['topology']}: primary {', '.join(facts['primaries'])}; replicas: {facts['replicas']}",
        "uptime": duration(health["uptime"]),
        "memory": f"{size(used)} of {size(limit)} ({facts['memoryPressure']:.1%})",
        "clients": f"{facts['clients']['connected']} connected, {facts['clients']['blocked']} blocked",
        "operations": f"{facts['operationsPerSecond']} a second, {facts['operations']['commandsProcessed']} so far",
        "hit rate": f"{facts['performance']['hitRate']:.1%} of {reads} reads",
        "keys": f"{facts['keys']['expired']} expired, {facts['keys']['evicted']} evicted",
        "persistence": facts["persistence"],
        "health": f"{health['status']}, answers in {health['responseTime']:.2f} ms",
    }


def duration(seconds: int) -> str:
    """The two largest units: `3 d 4 h`, `12 min 5 s`."""
    parts = [(seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    first = next((place for place, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2])
