"""`kizuna up`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.output import json_option, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.metrics import Source
    from kizuna.probes import Probes
    from kizuna.settings import Settings


@click.command()
@json_option
@click.pass_obj
def up(invocation: Invocation, as_json: bool) -> None:
    """Run the server and all services in the foreground. Ctrl-C or SIGTERM ends it.

    With the default store.url the embedded server is started, or used if it runs already; it ends with its last
    user. With any other, kizuna connects to that server. The first line on stdout comes when everything works.

    Being told to end is no failure: the exit code is then 0. A second signal ends it at once, with 130 or 143.

    \b
    $ kizuna up
    $ kizuna --set embedded.profile=durable up
    $ kizuna --url redis://db:6379 up --json | head -1 | jq -r .probes
    """
    from kizuna.cli.logs import show_logs
    from kizuna.loop import run

    show_logs()
    run(serve(invocation.settings, as_json=as_json))


async def serve(settings: Settings, *, as_json: bool) -> None:
    from kizuna.app import connect
    from kizuna.coordination.metrics.sampler import Sampler
    from kizuna.service import run_until_signalled

    async with connect(settings) as kizuna:
        measures: list[Source] = [kizuna.processes.measures]
        if may_remember(kizuna):
            # What others remember ends on time, and is told of, whether or not one of them is there then.
            await kizuna.memory.begin()
            measures.append(kizuna.memory.measures)
        probes, sampler = make_probes(kizuna, *measures), Sampler(kizuna.metrics)

        def announce() -> None:
            show(places(kizuna, probes), as_json=as_json)
            say("Ctrl-C stops it.")

        # Last, so that nobody sees a process that does not work yet.
        membership = kizuna.processes.membership(kind="up")
        signal = await run_until_signalled(probes, sampler, membership, on_started=announce)
        say(f"Stopped by {signal.name}.")


def may_remember(kizuna: Kizuna) -> bool:
    """Not on a cluster without shards: there, memory says itself what to set, once it is used."""
    return kizuna.store.target.kind != "cluster" or kizuna.settings.memory.shards > 1


def make_probes(kizuna: Kizuna, *measures: Source, port: int | None = None) -> Probes:
    """With the `measures` of what else the process does; at `probes.port` unless another one is given."""
    from msgspec.structs import replace

    from kizuna.metrics import Metrics
    from kizuna.probes import Probes
    from kizuna.store.health.watch import ServerWatch

    watch = ServerWatch(kizuna.store)
    metrics = Metrics(watch.measures, *measures)

    async def page(accept: str) -> tuple[bytes, str]:
        await watch.look()
        return metrics.page(accept)

    settings = kizuna.settings.probes
    return Probes(settings if port is None else replace(settings, port=port), watch.problems, page)


def places(kizuna: Kizuna, probes: Probes) -> dict[str, Any]:
    """Where everything is."""
    from kizuna.settings import redact_url
    from kizuna.store.topology import Embedded

    topology = kizuna.store.topology
    primaries = [link.describe() for link in topology.primaries()]
    where: dict[str, Any] = {"server": redact_url(kizuna.settings.store.url)}
    if isinstance(topology, Embedded):
        # Not from settings: another process may have started it with others.
        server = topology.server.status()
        where = {"server": f"redis://{primaries[0]}", "data": str(server.folder), "profile": server.profile}
    elif kizuna.store.target.kind != "single":
        where["primaries"] = primaries
    return where | {"probes": probes.url, "pid": os.getpid(), "process": kizuna.process}
